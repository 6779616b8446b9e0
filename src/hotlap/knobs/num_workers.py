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
    None where items, collate function and sampler draw nothing, keep nothing and give none of the dataset's memory
    away: the same batches in the same order, and the same random numbers for the model. As many batches as fit into
    a second are made twice in a process of their own to find that out; where not all could be, or not everything that
    items depend on could be walked, the class is audited. Else the numbers fall differently: statistical. So it is for
    an IterableDataset, whose order changes. While it trains, what items depend on is compared before each batch, and
    at random moments a batch is made again in the training process: where the script changes its dataset in the middle
    of an epoch, or a batch differs, it goes on without workers.
"""

from __future__ import annotations

import multiprocessing

from hotlap.cost.reading import load_of, prefetch_of, training_loader
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import WORKERS_RELIEVE, CannotActError, Knob, Numerics
from hotlap.ports.target import Loader, Seam, Undo
from hotlap.ports.values import Whole

_PER_WAITING_CORE = 4  # items that wait leave the processor to others
_WAITING = 0.5  # of an item's time: then it is the waiting that workers hide


class NumWorkers(Knob):
    id = "num-workers"
    relieves = WORKERS_RELIEVE
    seam = Seam.LOADER
    numerics = Numerics.BITWISE
    values = Whole(0, 256)
    live = True
    promise = (2.0, 4.0)

    def settings(self, host: Host, timeline: Timeline) -> tuple[int, ...]:
        """All cores, half of them and none; more where items wait; as /dev/shm allows."""
        found, load = training_loader(timeline), load_of(timeline, summarise(timeline), host)
        if found is None or load is None or found[1].iterable:
            return ()
        loader = found[1]
        if host.system == "Windows":  # processes are spawned with a copy of everything: seldom worth it
            return (0,) if loader.num_workers else ()
        most = _fit_shm(host, loader.batch_bytes, prefetch_of(loader))
        wanted = [host.cores, host.cores // 2]
        if load.work.wait_s > _WAITING * load.work.seconds:
            wanted += [host.cores * _PER_WAITING_CORE, host.cores * _PER_WAITING_CORE // 2]
        fitting = {min(each, most) for each in wanted} | {0}
        return tuple(sorted(fitting - {loader.num_workers}, reverse=True))

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        """The exposed time of data; all of the step where workers outnumber the cores that training wants too."""
        found = training_loader(timeline)
        if found is None or not self.settings(host, timeline):
            return 0.0
        crowded = found[1].num_workers > host.cores
        return 1.0 if crowded else summarise(timeline).share(Stage.DATA)

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
        now = target.arguments
        if setting == now["num_workers"]:
            return Numerics.BITWISE
        # Workers that persist draw one seed for all epochs, and without them there is one for each.
        reseeded = now["persistent_workers"] and not setting
        if target.iterable or reseeded or not now.get("in_order", True) or target.draws() or target.lazy():
            return Numerics.STATISTICAL
        return Numerics.AUDITED if target.unproved() else Numerics.BITWISE


def _fit_shm(host: Host, batch_bytes: int | None, prefetch: int) -> int:
    """Workers whose batches fit into /dev/shm all at once, one in the making beside those that wait."""
    if not batch_bytes or host.shm_free_bytes is None:
        return 256
    return int(host.shm_free_bytes // (batch_bytes * (prefetch + 1)))
