"""Let more or fewer processes prepare batches beside the training.

What it does
    Builds every DataLoader with this `num_workers`. With 0 the training process loads by itself, and what only means
    something with workers (`prefetch_factor`, `persistent_workers`, `timeout`) is dropped.
When it helps
    The step waits for data. Items that need the CPU scale up to the cores, items that wait for a disk or a network
    beyond them. Items that are already in memory are quicker without any worker: handing a batch over between
    processes costs about 1 ms and 2 ms for each MiB.
What it costs
    Memory for each process, and cores that the training itself may want. An IterableDataset that does not ask which
    worker it is in would give every item once for each worker: it is left alone.
Numerics
    None where items are the same each time: the same batches in the same order, and the same random numbers for the
    model. Where a sample shows that items draw random numbers, or the sampler draws while it is iterated, the numbers
    fall differently: statistical. So it is for an IterableDataset, whose order changes.
"""

from __future__ import annotations

import multiprocessing

from hotlap.cost.pipeline import Setting, best_workers, predict
from hotlap.cost.reading import cores_for, load_of, setting_of, training_loader
from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Loader, Seam, Undo
from hotlap.ports.values import Whole

_PER_WAITING_CORE = 4  # items that wait leave the processor to others
_WAITING = 0.5  # of an item's time: then it is the waiting that workers hide


class NumWorkers(Knob):
    id = "num-workers"
    relieves = frozenset(
        {
            Cause.INPUT_STARVED,
            Cause.ITEM_CPU_BOUND,
            Cause.ITEM_IO_BOUND,
            Cause.COLLATE_BOUND,
            Cause.WORKERS_TOO_FEW,
            Cause.WORKERS_TOO_MANY,
        }
    )
    seam = Seam.LOADER
    numerics = Numerics.BITWISE
    values = Whole(0, 256)
    live = True
    promise = (2.0, 4.0)

    def settings(self, host: Host, timeline: Timeline) -> tuple[int, ...]:
        """What the loader model thinks best, half of it, all cores, and none; as /dev/shm allows."""
        found, load = training_loader(timeline), load_of(timeline, summarise(timeline), host)
        if found is None or load is None or found[1].iterable:
            return ()
        loader = found[1]
        if host.system == "Windows":  # processes are spawned with a copy of everything: seldom worth it
            return (0,) if loader.num_workers else ()
        waits = load.work.wait_s > _WAITING * load.work.seconds
        most = _fit_shm(host, loader.batch_bytes, setting_of(loader).prefetch)
        most = min(most, host.cores * (_PER_WAITING_CORE if waits else 1))
        best = best_workers(load, setting_of(loader), range(most + 1), cores_for(timeline, host))
        wanted = {0, best, best // 2, min(host.cores, most)} - {loader.num_workers}
        return tuple(sorted(wanted))

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        """The best setting's prediction at its brightest, and never more than the exposed time of data."""
        summary = summarise(timeline)
        found, load = training_loader(timeline), load_of(timeline, summary, host)
        if found is None or load is None:
            return 0.0
        now, cores = setting_of(found[1]), cores_for(timeline, host)
        candidates = [Setting(workers, now.prefetch) for workers in self.settings(host, timeline)]
        highs = [predict(load, now, then, cores).interval.high for then in candidates]
        gain = max(highs, default=0.0)
        # Fewer workers also give cores back to the training: then more than the waiting can go.
        most = 1.0 if now.workers > host.cores else summary.share(Stage.DATA)
        return max(0.0, min(most, 1.0 - 1.0 / (1.0 + max(0.0, gain))))

    def apply(self, target: Loader, setting: int) -> Undo:
        if setting == target.arguments["num_workers"]:
            return target.change()
        if target.iterable and not target.shards():
            raise CannotActError(
                "its IterableDataset does not ask which worker it is in (torch.utils.data.get_worker_info), "
                "so each worker would give every item"
            )
        if setting == 0:
            return target.change(
                num_workers=0,
                prefetch_factor=None,
                persistent_workers=False,
                timeout=0,
                multiprocessing_context=None,
            )
        if multiprocessing.current_process().daemon:
            raise CannotActError("the script runs in a daemonic process, which may not start others")
        return target.change(num_workers=setting)

    def numerics_at(self, target: Loader, setting: int) -> Numerics:
        if setting == target.arguments["num_workers"]:
            return Numerics.BITWISE
        if target.iterable or target.draws() or target.lazy():
            return Numerics.STATISTICAL
        return Numerics.BITWISE


def _fit_shm(host: Host, batch_bytes: int | None, prefetch: int) -> int:
    """Workers whose batches fit into /dev/shm all at once, one in the making beside those that wait."""
    if not batch_bytes or host.shm_free_bytes is None:
        return 256
    return int(host.shm_free_bytes // (batch_bytes * (prefetch + 1)))
