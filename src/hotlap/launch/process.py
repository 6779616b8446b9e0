"""Runs a job as a child process: its input and output stay its own, its signals reach it, its end is told."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import IO, Any, Protocol

import psutil

from hotlap.errors import UsageError
from hotlap.facts.job import Job
from hotlap.facts.timeline import Ending
from hotlap.host.vitals import ProcessTree
from hotlap.probe import boundary

TICK_S = 0.2
_FROM_TERMINAL = 0x80  # SI_KERNEL: the terminal sent the signal, so the job has got it too
_PATIENCE = 3  # interrupts until the job is ended by force
_GROUP_GRACE_S = 1.0  # how long a job may take to end of which it is not known whether it has got a signal


@dataclass(frozen=True)
class Outcome:
    """How the child ended. `exit_code` is what a shell would show: 128 + the signal's number for a signal."""

    exit_code: int
    seconds: float
    ended_at: int
    interrupted: bool = False
    by_signal: int | None = None

    @property
    def ending(self) -> Ending:
        if self.interrupted:
            return Ending.INTERRUPTED
        if self.by_signal is not None:
            return Ending.KILLED
        return Ending.FINISHED if self.exit_code == 0 else Ending.CRASHED


def run_job(
    job: Job,
    environment: Mapping[str, str],
    on_tick: Callable[[int], bool],
    signals: Signals,
    *,
    quiet_stdout: bool = False,
    streams: tuple[IO[bytes], IO[bytes]] | None = None,
    ends_with_us: bool = False,
) -> Outcome:
    """Start the job and wait. `on_tick(pid)` is called several times a second; False ends the job civilly.

    With `ends_with_us` it does not outlive hotlap, whatever kills that.
    With `quiet_stdout` what the script prints goes to standard error, so that standard output is the caller's alone;
    `streams` take its output and its errors.
    """
    wanted = streams or (2 if quiet_stdout else None, None)
    running = RunningJob(job, environment, on_tick, signals, wanted, ends_with_us=ends_with_us)
    while running.going:
        running.tick(signals.next(TICK_S))
    return running.outcome()


class ProcessHandle(Protocol):
    """A started process, as subprocess has it."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, number: int) -> None: ...


def cold(
    job: Job, environment: Mapping[str, str], signals: Signals, streams: tuple[Any, Any]
) -> ProcessHandle:
    """Start the job as a shell would."""
    try:
        return subprocess.Popen(
            job.argv,
            cwd=job.cwd,
            env=dict(environment),
            stdout=streams[0],
            stderr=streams[1],
            preexec_fn=signals.for_child,
        )
    except FileNotFoundError:
        raise UsageError(
            f"there is no command '{job.stored().argv[0]}'.", "check the spelling, or give its path"
        ) from None
    except PermissionError:
        raise UsageError(
            f"'{job.stored().argv[0]}' cannot be executed.",
            f"chmod +x {job.argv[0]}, or name its interpreter",
        ) from None
    except OSError as error:
        raise UsageError(
            f"'{job.stored().argv[0]}' cannot be started: {error.strerror}.",
            "name its interpreter, such as bash or python",
        ) from None


class RunningJob:
    """A job that was started. Whoever waits for its end calls `tick` with the signals that come meanwhile."""

    def __init__(
        self,
        job: Job,
        environment: Mapping[str, str],
        on_tick: Callable[[int], bool],
        signals: Signals,
        streams: tuple[Any, Any],
        start: Callable[..., ProcessHandle] = cold,
        *,
        ends_with_us: bool,
    ) -> None:
        self.started = time.perf_counter_ns()
        self.child = start(job, environment, signals, streams)
        self._binding = Binding(self.child.pid) if ends_with_us else None
        self.on_tick = on_tick
        self.interrupts = 0
        self._ended: int | None = None
        early = signals.next(0)  # while it was being started: the terminal did not know of it
        if early is not None:
            self.pass_on(early[0], job_has_it=False)

    @property
    def going(self) -> bool:
        if self._ended is None and self.child.poll() is not None:
            self._ended = time.perf_counter_ns()
        return self._ended is None

    def end(self) -> None:
        """Civilly, if it has not ended by itself."""
        if self.going:
            end_job(self.child.pid)

    def outcome(self) -> Outcome:
        """Once it has ended."""
        code = self.child.wait()
        if self._binding is not None:
            self._binding.loosen()
        ended = self._ended or time.perf_counter_ns()
        return Outcome(
            exit_code=128 - code if code < 0 else code,
            seconds=(ended - self.started) / 1e9,
            ended_at=ended,
            interrupted=self.interrupts > 0,
            by_signal=-code if code < 0 else None,
        )

    def tick(self, received: tuple[int, bool] | None) -> None:
        if received is not None:
            self.pass_on(*received)
        elif boundary.attempt(self.on_tick, self.child.pid) is False:
            self.end()

    def pass_on(self, number: int, job_has_it: bool) -> None:
        self.interrupts += 1
        if self.interrupts >= _PATIENCE:
            end_job(self.child.pid, graces=(0, 1))
        elif not job_has_it and not self._ends_by_itself():
            self.child.send_signal(number)

    def _ends_by_itself(self) -> bool:
        """A signal to the whole process group has reached the job too, and a second one would break into its end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(_GROUP_GRACE_S)
        return self.child.poll() is not None


class Signals:
    """Signals to hotlap while a job runs and its report is written, taken one by one instead of interrupting.

    Ctrl-C in a terminal goes to the job as well; `kill` does not, and must be passed on. Where the system does not
    tell them apart, an interrupt counts as the terminal's.
    """

    def __init__(self) -> None:
        self._can_wait = hasattr(signal, "sigtimedwait")
        self._elsewhere: deque[int] = deque()  # came to a thread of a library, which does not hold them
        self._handlers: dict[int, Any] = {}
        known = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]
        # What is ignored (nohup, a background job of a shell) stays ignored.
        self._numbers = {each for each in known if each and signal.getsignal(each) is not signal.SIG_IGN}

    def __enter__(self) -> Signals:
        if self._can_wait:
            self._before = signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)
            if threading.current_thread() is threading.main_thread():
                self._handlers = {each: signal.signal(each, self._note) for each in self._numbers}
        return self

    def _note(self, number: int, _frame: object) -> None:
        self._elsewhere.append(number)

    @property
    def for_child(self) -> Callable[[], object] | None:
        """Gives the child the signals back that are held here."""
        if not self._can_wait:
            return None
        return lambda: signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def __exit__(self, *_: object) -> None:
        if self._can_wait:
            while signal.sigtimedwait(
                self._numbers, 0
            ):  # an impatient second Ctrl-C, while the report was written
                pass
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def next(self, seconds: float) -> tuple[int, bool] | None:
        """The next signal and whether the job has got it too; None after a while."""
        if self._can_wait:
            received = None if self._elsewhere else signal.sigtimedwait(self._numbers, seconds)
            if received:
                return received.si_signo, received.si_code == _FROM_TERMINAL
            # who sent it is not known there
            return (self._elsewhere.popleft(), False) if self._elsewhere else None
        try:
            time.sleep(seconds)
        except KeyboardInterrupt:
            return signal.SIGINT, os.name != "nt"
        return None


# Ends a job in a civil way: SIGINT, then SIGTERM, then SIGKILL, each with a grace time.


POLL_S = 0.02
KILL_GRACE_S = 5.0
"""A killed process is gone at once, unless it hangs in the kernel (a dead network mount)."""


class Means(StrEnum):
    """What made the root process end."""

    NONE = "none"  # it had ended before
    INTERRUPT = "interrupt"
    TERMINATE = "terminate"
    KILL = "kill"


@dataclass(frozen=True)
class JobEnd:
    """How a job ended. `killed` had to be killed, `left` could not even be killed: process ids."""

    by: Means
    seconds: float
    killed: tuple[int, ...] = ()
    left: tuple[int, ...] = ()


def end_job(pid: int, graces: tuple[float, float] = (10, 5)) -> JobEnd:
    """End the process and all below it; returns when all are gone. The caller is left to reap the process.

    SIGINT and SIGTERM go to the root alone, which ends its workers itself; only where it is gone and has
    left some behind do they get the signal. The graces are those of SIGINT, long enough to write a
    checkpoint, and of SIGTERM.
    """
    start = time.perf_counter()
    tree = ProcessTree(pid)
    root_ended_by = Means.NONE
    for means, grace in _ladder(graces):
        alive = tree.running()
        if not alive:
            break
        root_alive = pid in alive
        for process in [alive[pid]] if root_alive else alive.values():
            _send(process, means)
        _wake(alive.values())
        _wait_until_gone(tree, grace)
        if root_alive:
            root_ended_by = means
    root_killed = pid in tree.running()
    killed, left = _kill_all(tree)
    return JobEnd(Means.KILL if root_killed else root_ended_by, time.perf_counter() - start, killed, left)


def _ladder(graces: tuple[float, float]) -> Iterable[tuple[Means, float]]:
    """Windows has no way to interrupt a process politely from outside of its console."""
    if os.name == "nt":
        return [(Means.TERMINATE, graces[1])]
    return zip((Means.INTERRUPT, Means.TERMINATE), graces, strict=True)


def _send(process: psutil.Process, means: Means) -> None:
    try:
        if means is Means.INTERRUPT:
            process.send_signal(signal.SIGINT)
        elif means is Means.TERMINATE:
            process.terminate()
        else:
            process.kill()
    except psutil.Error:  # it has just ended, or is not ours: what is left is reported
        return


def _wake(processes: Iterable[psutil.Process]) -> None:
    """A process that is stopped hears of no signal before it goes on."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.resume()


def _wait_until_gone(tree: ProcessTree, seconds: float) -> None:
    end = time.perf_counter() + seconds
    while tree.running() and time.perf_counter() < end:
        time.sleep(POLL_S)


def _kill_all(tree: ProcessTree) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Kill again and again, as a process may start another between a look and the kill."""
    killed: set[int] = set()
    end = time.perf_counter() + KILL_GRACE_S
    while (alive := tree.running()) and time.perf_counter() < end:
        for pid, process in alive.items():
            _send(process, Means.KILL)
            killed.add(pid)
        time.sleep(POLL_S)
    left = tuple(sorted(tree.running()))
    return tuple(sorted(killed - set(left))), left


# Ends a job when hotlap is gone, by an end of any kind: one that was to be ended after its window must not go on.


# A word means that the job has ended; the end of the pipe without one, that hotlap has. The grace lets it write a file.
_END_ALONE = (
    'read -r done || { kill -INT "$1"; for tenth in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do'
    ' sleep 0.1; kill -0 "$1" || exit; done; kill -KILL "$1"; }'
)


class Binding:
    """Until it is loosened, the job whose first process is `pid` does not outlive hotlap. Its workers end with it."""

    def __init__(self, pid: int) -> None:
        self._shell: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):  # no shell, or no more processes: not worse off than without it
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _END_ALONE, "sh", str(pid)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # what kills hotlap's whole group must not kill it too
            )

    def loosen(self) -> None:
        """The job has ended."""
        if self._shell is not None:
            with contextlib.suppress(OSError):
                self._shell.communicate(b"done\n")
            self._shell = None
