"""Whether a dataset's items fit into memory or onto the disk, with room to spare."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path

from hotlap.cost.memory import Fit
from hotlap.data.cache.encode import itemsize
from hotlap.data.cache.proof import Proof
from hotlap.data.cache.refusal import CannotCacheError, NoFileError
from hotlap.data.cache.shape import Leaf, leaves_of
from hotlap.units import size

DISK_MARGIN = 0.1  # of the free space stays free: checkpoints and logs need some
INDEX_BYTES = 16  # of each value of varying size, and of each window
CHUNK_S, CHUNK_BYTES, CHUNK_MOST = 0.25, 8 << 20, 2048
UNSURE = 1.2  # times what samples of varying sizes say


def needed_bytes(proof: Proof, count: int) -> int:
    """All items at once, as the samples say. Windows that overlap are counted by what is new in each."""
    leaves = leaves_of(proof.shape)
    whole = sum(_bytes(leaf) for leaf, new in zip(leaves, proof.sliding, strict=True) if new is not None)
    new = sum(_bytes(leaf) * new for leaf, new in zip(leaves, proof.sliding, strict=True) if new is not None)
    varies = any(leaf.shape is None for leaf in leaves)
    each = (proof.item_bytes - whole) * (UNSURE if varies else 1.0) + new + INDEX_BYTES * len(leaves)
    return int(each * count + whole * (1 + count / chunk_items(proof)))


def chunk_items(proof: Proof) -> int:
    """Items that one process fetches at a time: long enough to be worth a message, short enough to show progress."""
    by_time = CHUNK_S / max(proof.item_s, 1e-7)
    by_size = CHUNK_BYTES / max(proof.item_bytes, 1.0)
    return max(1, min(int(min(by_time, by_size)), CHUNK_MOST))


def require_memory(needed: int) -> int:
    """The most bytes that may be used. Each rank of a machine keeps its own."""
    ranks = max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1") or 1))
    held = Fit(needed * ranks, free_memory())
    if not held.fits:
        copies = f" for each of {ranks} ranks" if ranks > 1 else ""
        raise CannotCacheError(
            f"all items need {size(needed)}{copies}, and {size(held.free)} of memory are free"
        )
    return held.free // ranks


def require_disk(needed: int, folder: Path) -> int:
    """The most bytes that may be written."""
    free = shutil.disk_usage(folder).free
    most = int(free * (1.0 - DISK_MARGIN))
    if needed > most:
        raise NoFileError(f"all items need {size(needed)}, and {size(free)} are free in {folder}")
    return most


def free_memory() -> int:
    """Bytes that are still to be had, within what a container grants."""
    if not (about := _pairs(Path("/proc/meminfo"))):
        import psutil

        return int(psutil.virtual_memory().available)
    return min([about["MemAvailable:"] * 1024, *_granted()])


def _granted() -> list[int]:
    """What is left of the limit of each cgroup that this process is in, version 2 and 1."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    left = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        top = Path("/sys/fs/cgroup/memory" if controllers == "memory" else "/sys/fs/cgroup")
        if controllers not in ("", "memory"):
            continue
        inner = Path(path.lstrip("/"))
        for folder in {top, top / inner, *(top / each for each in inner.parents)}:
            left += _left(folder)
    return left


def _left(folder: Path) -> list[int]:
    """Idle file cache counts as left: the kernel gives it up on demand."""
    for names in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            limit, used = ((folder / name).read_text().strip() for name in names[:2])
        except OSError:
            continue
        if limit.isdigit() and int(limit) < 1 << 60:
            idle = _pairs(folder / "memory.stat").get(names[2], 0)
            return [max(0, int(limit) - max(0, int(used) - idle))]
    return []


def _pairs(path: Path) -> dict[str, int]:
    try:
        words = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {each[0]: int(each[1]) for each in words if len(each) > 1 and each[1].isdigit()}


def _bytes(leaf: Leaf) -> int:
    return math.prod(leaf.shape or ()) * itemsize(leaf)
