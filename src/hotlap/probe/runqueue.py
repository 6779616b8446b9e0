"""How long a thread was ready to run but had no core to run on. Linux counts it; elsewhere it is not known."""

from __future__ import annotations

import os
import threading


class RunQueue:
    """Reads the scheduler's own count of the calling thread; the file is opened once for each thread."""

    def __init__(self) -> None:
        self._files: dict[int, int] = {}

    def waited_ns(self) -> int | None:
        """Nanoseconds since the thread began; None where the system does not count them."""
        thread = threading.get_ident()
        file = self._files.get(thread)
        if file is None:
            file = self._files[thread] = _open()
        if file < 0:
            return None
        return int(os.pread(file, 64, 0).split()[1])

    def forget(self) -> None:
        """After a fork the files are still those of the parent's threads."""
        for file in self._files.values():
            if file >= 0:
                os.close(file)
        self._files.clear()


def _open() -> int:
    try:
        return os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
    except OSError:
        return -1
