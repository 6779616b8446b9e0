"""Lines of presets on input: how many workers a host can feed, and how batches reach its device."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.propose.ground import GIB, Ground, Line
from hotlap.units import size

_MOST_WORKERS = 8
"""For one training process; more rarely pays, and each takes memory. A profile may ask for more."""
_WORKER_BYTES = GIB
"""Of a worker with torch imported, the libraries of its items and its share of batches: a careful guess."""
_TINY_SHM = GIB // 2
"""Docker grants 64 MiB; workers that hand over batches through less than this die of a bus error."""


def workers(ground: Ground, *, generous: bool = False, spare: bool = False) -> Iterator[Line]:
    """Workers and what hangs on them. `generous` looks further ahead, `spare` keeps few batches in memory."""
    host, loader = ground.host, ground.loader
    if host.system == "Windows":
        yield (
            "num-workers",
            0,
            "Windows starts each worker by importing the script anew: ask for more by --set",
        )
        if ground.ranks > 1 and ground.frameworks:
            yield "ddp-spawn", True, "Windows cannot start the ranks by running the script's command again"
        return
    if loader is not None and loader.iterable:
        return  # a stream that does not divide itself would give every row once for each worker
    if host.shm_free_bytes is not None and host.shm_free_bytes < _TINY_SHM:
        return
    count, reason = _count(ground)
    if spare and count > 2:
        count, reason = 2, f"few, as each holds batches and memory of its own ({reason})"
    if count < 1:
        return
    if not ground.draws_are_known:
        reason += "; statistical where items draw random numbers, which the run then says"
    yield "num-workers", count, reason
    yield "persistent-workers", True, "workers live on between epochs instead of starting anew"
    if generous:
        yield "prefetch-factor", 4, "twice the usual look ahead evens out items of uneven cost"
    elif spare:
        yield "prefetch-factor", 2, "no more batches ahead than two for each worker"


def transfer(ground: Ground) -> Iterator[Line]:
    if ground.gpu is not None:
        yield "pin-memory", True, "batches go to the GPU from page-locked memory, without a copy on the host"
        yield "non-blocking", True, "the host goes on while a batch is on its way to the GPU"


def _count(ground: Ground) -> tuple[int, str]:
    host = ground.host
    cores = host.cores // ground.ranks
    if ground.gpu is not None:
        wanted, reason = cores - 1, f"one core of {host.cores} is left to each training process"
    else:
        # On the CPU the model computes on the same cores: half of them, where there are enough to share.
        wanted, reason = (
            cores // 2 if cores >= 4 else 0,
            f"half of {host.cores} cores, the model computes on the others",
        )
    if wanted > _MOST_WORKERS:
        wanted, reason = _MOST_WORKERS, f"enough for most items, with {host.cores} cores"
    room = int(host.ram_free_bytes / 2 / _WORKER_BYTES / ground.ranks)
    if room < wanted:
        wanted, reason = room, f"no more, with {size(host.ram_free_bytes)} of memory free"
    return max(0, wanted), reason
