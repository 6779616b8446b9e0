"""Holds a running job, all its processes at once, and lets it go on; what it missed is written down as pauses.

Whatever becomes of hotlap, no process stays stopped: a small shell knows all that were ever held, and lets them go on
when hotlap's end of a pipe is closed, by its end of any kind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hotlap.launch.pauses import note_pause
from hotlap.launch.tree import ProcessTree

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
