"""The processes of a job: its root, all descendants, and those that outlived their parent."""

from __future__ import annotations

import psutil


class ProcessTree:
    """Follows a root process. Once seen below the root, a process belongs to the tree until it is gone.

    Only processes that are new since the last look are examined, so following a job costs little on a machine
    with thousands of processes. A process whose parent ended before both were seen is missed.
    """

    def __init__(self, root: int) -> None:
        self.root = root
        self._seen: set[int] = set()
        self._members: dict[int, psutil.Process] = {}
        if (process := _open(root)) is not None:
            self._members[root] = process

    def members(self) -> dict[int, psutil.Process]:
        """All that exist now; an ended one exists until its parent has noticed."""
        self._members = {pid: process for pid, process in self._members.items() if process.is_running()}
        now = set(psutil.pids())
        fresh = {pid: parent for pid in now - self._seen if (parent := _parent(pid)) is not None}
        self._seen = now
        if self._members:
            self._adopt(fresh)
        return dict(self._members)

    def running(self) -> dict[int, psutil.Process]:
        """The members that have not ended."""
        return {pid: process for pid, process in self.members().items() if not _ended(process)}

    def _adopt(self, fresh: dict[int, int]) -> None:
        grown = True
        while grown:
            grown = False
            for pid, parent in list(fresh.items()):
                if parent in self._members and pid not in self._members:
                    del fresh[pid]
                    if (process := _open(pid)) is not None:
                        self._members[pid] = process
                        grown = True


def _open(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def _parent(pid: int) -> int | None:
    try:
        return psutil.Process(pid).ppid()
    except psutil.Error:
        return None


def _ended(process: psutil.Process) -> bool:
    try:
        return process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return True
