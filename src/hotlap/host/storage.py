"""How fast a folder reads, from the disk and not from the page cache.

A file without a name is written into the folder and read back in order, so nothing stays behind, whatever
happens. Between the two, the kernel is told to drop the file's pages, and asked whether it did. Where it
does not say, the file is read with O_DIRECT. A cache below the kernel (a RAID controller's, a hypervisor's)
cannot be kept out.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import platform
import shutil
import tempfile
import time
from pathlib import Path

import psutil

from hotlap.facts.host import Storage

BLOCK_BYTES = 4 << 20
"""Read and written at once: a multiple of every page and sector size, as O_DIRECT asks for."""
MAX_BYTES = 256 << 20
"""Half a second of a fast NVMe disk: longer than its start, shorter than anyone's patience."""
MIN_BYTES = 4 * BLOCK_BYTES
"""Less than this says more about one seek than about the disk."""
MAX_SECONDS = 2.0
"""For writing and for reading, each: a slow disk is measured on what it manages in this time."""
DROPS = 5
IN_MEMORY = {"tmpfs", "ramfs"}


class NotMeasurableError(Exception):
    """Why the speed of this folder cannot be known; shown to the user."""


def read_speed(folder: Path) -> Storage:
    """Measure the folder; raises NotMeasurableError with the reason where no honest figure can be had."""
    if platform.system() != "Linux":
        raise NotMeasurableError(f"on {platform.system()} no way past the page cache is known to work")
    kind = _file_system(folder)
    if kind in IN_MEMORY:
        raise NotMeasurableError(f"the folder lies in memory ({kind})")
    try:
        return _measure(folder)
    except OSError as error:
        raise NotMeasurableError(f"a test file failed: {error.strerror or error}") from None


def _measure(folder: Path) -> Storage:
    room = shutil.disk_usage(folder).free // 10
    if room < MIN_BYTES:
        raise NotMeasurableError("the disk is full")
    with tempfile.TemporaryFile(dir=folder, prefix=".hotlap-", buffering=0) as file:
        written = _write(file.fileno(), min(MAX_BYTES, room))
        method = _bypass_cache(file.fileno(), written)
        return Storage(str(folder), _read(file.fileno(), written), method)


def _file_system(folder: Path) -> str:
    """The type of the mount that holds the folder."""
    place = folder.resolve()
    mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    return next((mounts[path] for path in (place, *place.parents) if path in mounts), "")


def _write(file: int, most: int) -> int:
    """Fill the file until the time is up. No two blocks are equal, so that no disk can store them once."""
    block = bytearray(os.urandom(BLOCK_BYTES))
    written = 0
    end = time.perf_counter() + MAX_SECONDS
    while written + BLOCK_BYTES <= most and (written < MIN_BYTES or time.perf_counter() < end):
        for page in range(0, BLOCK_BYTES, mmap.PAGESIZE):
            block[page : page + 8] = (written + page).to_bytes(8, "little")
        written += os.write(file, block)
        os.fdatasync(file)  # each block: a slow disk shows here and not in one long wait at the end
    return written


def _bypass_cache(file: int, length: int) -> str:
    """Make the next read come from the disk, and say how."""
    import fcntl  # not there on Windows

    if drop_cache(file, length):
        return "pages dropped from the cache before reading"
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_DIRECT)
    except OSError:
        raise NotMeasurableError("its file system always reads through the cache") from None
    return "O_DIRECT"


def drop_cache(file: int, length: int) -> bool:
    """Drop the file's pages; False where they are still there or the file system does not say.

    The kernel passes over pages that it is just moving between its own lists, so it is asked more than once.
    """
    for _ in range(DROPS):
        with contextlib.suppress(OSError):
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        if (cached := is_cached(file, length)) is not True:
            return cached is False
    return False


def is_cached(file: int, length: int) -> bool | None:
    """Whether one of a few pages is in the page cache; None where the file system does not say.

    Asking makes the kernel read on ahead, by megabytes on some disks: so it is told that reads will be
    random, and asked from the end.
    """
    page = bytearray(mmap.PAGESIZE)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    try:
        for offset in reversed(range(0, length, max(length // 8, mmap.PAGESIZE))):
            try:
                os.preadv(file, [page], offset, os.RWF_NOWAIT)
            except BlockingIOError:
                continue
            return True
        return False
    except OSError:
        return None
    finally:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_NORMAL)


def _read(file: int, length: int) -> float:
    """Bytes a second, in order from the start."""
    done = 0
    with mmap.mmap(-1, BLOCK_BYTES) as buffer:  # page-aligned, as O_DIRECT asks for
        start = time.perf_counter()
        while done < length and time.perf_counter() - start < MAX_SECONDS:
            done += os.preadv(file, [buffer], done)
        return done / (time.perf_counter() - start)
