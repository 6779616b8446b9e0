"""Holds a running job, all its processes at once, and lets it go on; what it missed is written down as pauses.

Whatever becomes of hotlap, no process stays stopped: a small shell knows all that were ever held, and lets them go on
when hotlap's end of a pipe is closed, by its end of any kind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Self

from hotlap.facts import private
from hotlap.host.vitals import ProcessTree
from hotlap.probe import marks
from hotlap.probe.sampler import LINE_BITS

_RELEASE_ALL = (
    'all=; while read -r pid; do all="$all $pid"; done; for pid in $all; do kill -CONT "$pid"; done'
)
_CORE = 36  # field of /proc/PID/stat, after the name
_FOLLOW_EVERY_NS = 100_000_000  # listing all processes of a large machine takes milliseconds
now = time.perf_counter_ns


class Guard:
    """Lets all that were held go on when it is closed, or when hotlap is gone."""

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _RELEASE_ALL],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # what kills hotlap's whole group must not kill it too
        )

    def close(self) -> None:
        self._shell.communicate()

    def know(self, pids: Iterable[int]) -> None:
        """Before they are held."""
        fresh = set(pids) - self._known
        self._known |= fresh
        if fresh and self._shell.stdin is not None:
            self._shell.stdin.write("".join(f"{pid}\n" for pid in sorted(fresh)).encode())
            self._shell.stdin.flush()


class Hold:
    """Of the job whose first process is `pid`, and whose probe writes to `folder` times since `origin`."""

    def __init__(self, pid: int, folder: Path, origin: int, guard: Guard) -> None:
        self._folder, self._origin, self._guard = folder, origin, guard
        self._tree = ProcessTree(pid)
        self._pids: list[int] = []
        self._held_at: int | None = None
        self._held_ns = 0
        self._followed_at = 0
        self._follow()

    @property
    def held(self) -> bool:
        return self._held_at is not None

    @property
    def held_s(self) -> float:
        """In all, a pause that has not ended yet left out."""
        return self._held_ns / 1e9

    @property
    def moment(self) -> int:
        """What the job's own clock shows: nanoseconds since the origin, without the pauses."""
        return (self._held_at or now()) - self._origin - self._held_ns

    def hold(self) -> None:
        """Stop it, and those that were born since it was followed last. Who is held already is stopped again: somebody
        else, a shell that brings hotlap back from the background, may have let it go on."""
        self._send(signal.SIGSTOP)
        if self._held_at is None:
            self._held_at = now()
        if now() - self._followed_at > _FOLLOW_EVERY_NS and self._follow():
            self._send(signal.SIGSTOP)

    def release(self, core: int | None = None) -> None:
        """Let it go on, with its first thread woken on this core; from there it goes where the system wants it."""
        if self._held_at is not None:
            with _woken_on(self._tree.root, core):
                held_at, released = self._held_at, now()
                self._send(signal.SIGCONT)
            self._held_at = None
            self._held_ns += released - held_at
            note_pause(self._folder, held_at - self._origin, released - self._origin)

    @property
    def core(self) -> int | None:
        """That its first thread ran on last."""
        fields = _state(Path(f"/proc/{self._tree.root}"))
        return int(fields[_CORE]) if fields else None

    def busy_threads(self) -> int:
        """Threads that compute or wait for a core at this moment; who sleeps or waits for a disk does not count."""
        return sum(_runs(path) for pid in self._pids for path in _threads(pid))

    def _follow(self) -> bool:
        """Whether there are processes that were not known before."""
        before, self._followed_at = self._pids, now()
        self._pids = list(self._tree.members())
        self._guard.know(self._pids)
        return not set(self._pids) <= set(before)

    def _send(self, number: int) -> None:
        for pid in self._pids:
            try:
                os.kill(pid, number)
            except OSError:  # it has ended
                continue


def _threads(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def _runs(thread: Path) -> bool:
    return _state(thread)[:1] == ["R"]


def _state(task: Path) -> list[str]:
    """What the system says of a process or a thread, after its name; nothing where it has ended."""
    try:
        return (task / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


@contextmanager
def _woken_on(pid: int, core: int | None) -> Iterator[None]:
    """Neighbours on a shared machine disturb one core more than another, and a process keeps to its core.

    Who has chosen cores for itself is left alone.
    """
    allowed = os.sched_getaffinity(0)
    try:
        free = core in allowed and os.sched_getaffinity(pid) == allowed
        if free and core is not None:
            os.sched_setaffinity(pid, {core})
    except OSError:  # it has ended
        free = False
    try:
        yield
    finally:
        if free:
            with suppress(OSError):
                os.sched_setaffinity(pid, allowed)


# Several jobs at once, of which one runs at a time: whose turn it is, the others are held.


class Turns:
    """As a context manager: when it ends, in whatever way, all jobs go on."""

    def __init__(self) -> None:
        self._holds: dict[int, Hold] = {}
        self._last = 0

    def __enter__(self) -> Self:
        self._guard = Guard()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.all_go_on()
        finally:
            self._guard.close()

    def enter(self, pid: int, folder: Path, origin: int) -> Hold:
        """A job that was started, and runs; its probe writes to `folder` times since `origin`."""
        self._holds[pid] = Hold(pid, folder, origin, self._guard)
        return self._holds[pid]

    def leave(self, pid: int) -> None:
        """A job that has ended."""
        self._holds.pop(pid, None)

    def give(self, pid: int) -> None:
        """From now on this one runs alone, beginning on the core on which the one before it ran."""
        self.rest()
        before = self._holds.get(self._last)
        self._holds[pid].release(before.core if before else None)
        self._last = pid

    def rest(self) -> None:
        """Nobody runs. What must be done between two turns is done now, and takes no core from anybody."""
        for hold in self._holds.values():
            hold.hold()

    def all_go_on(self) -> None:
        for hold in self._holds.values():
            hold.release()


# The pauses in which a job was held, and its clock without them: a held job's timeline looks as if it never was.
#
# All processes of a machine read one monotonic clock, so whoever holds the job writes down when, beside what
# its probe writes: two numbers for each pause, nanoseconds since the run's origin, as the marks have them.


NAME = "pauses"
_TIMES = frozenset({*range(marks.VALUE_FROM), marks.EVAL_ON, marks.TRAIN_ON}) | marks.DEVICE_TIMES


def note_pause(folder: Path, start: int, end: int) -> None:
    """At once, before any mark after the pause is read."""
    with open(folder / NAME, "ab", opener=private.opener) as file:
        file.write(array("q", (start, end)).tobytes())


def read_clock(folder: Path) -> Clock:
    """The clock of the job whose probe writes to this folder; of a job that was never held, the time itself."""
    path = folder / NAME
    if not path.is_file():
        return ALWAYS
    content = path.read_bytes()
    values = array("q", content[: len(content) // 16 * 16])
    return Clock(list(zip(values[::2], values[1::2], strict=True)))


class Clock:
    """Stands still in the pauses, which are in order and do not meet."""

    def __init__(self, pauses: Sequence[tuple[int, int]]) -> None:
        self._starts = [start for start, _ in pauses]
        self._ends = [end for _, end in pauses]
        self._held = [0, *accumulate(end - start for start, end in pauses)]

    def at(self, t: int) -> int:
        """What it shows at a moment."""
        index = bisect_right(self._starts, t)
        if index and t < self._ends[index - 1]:
            return self._starts[index - 1] - self._held[index - 1]
        return t - self._held[index]

    def marks(self, raw: array[int]) -> array[int]:
        """As the ring writes them: `value << 8 | code`, of which not every value is a time."""
        if not self._starts:
            return raw
        return array(
            "q", (self.at(each >> 8) << 8 | each & 255 if each & 255 in _TIMES else each for each in raw)
        )

    def samples(self, raw: array[int]) -> array[int]:
        """As the sampler writes them: microseconds beside the number of a line."""
        if not self._starts:
            return raw
        line = (1 << LINE_BITS) - 1
        moved = (self.at((each >> LINE_BITS) * 1000) // 1000 << LINE_BITS | each & line for each in raw)
        return array("q", moved)


ALWAYS = Clock(())
