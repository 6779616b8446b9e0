"""What a step asks of its loader and of the machine, read off a timeline."""

from __future__ import annotations

from dataclasses import dataclass

from hotlap.facts.host import Host
from hotlap.facts.summary import Summary
from hotlap.facts.timeline import LoaderFacts, Stage, Timeline, WorkerFacts
from hotlap.stats.robust import median

SATURATED = 0.85  # of all cores busy in the median: who needs a core then may have to wait for it
QUEUED = 3.0  # times its CPU time: as long as work waits for a core where four want it at once

DISTURBED = 0.25  # of all cores used by others
TORCHS_COLLATE = "default_collate"
# A worker copies a batch into shared memory: per batch and per MiB, measured on an idle two-core machine.
WORKER_BATCH_S, WORKER_MIB_S = 0.4e-3, 1.9e-3


@dataclass(frozen=True)
class Work:
    """One batch: fetching all its items, and collating them.

    Fetching is on the CPU, waits for a core (`queue_s`) or waits for something else (`wait_s`).
    """

    items: float
    cpu_s: float
    wait_s: float
    collate_s: float
    queue_s: float = 0.0

    @property
    def fetch_s(self) -> float:
        return self.cpu_s + self.queue_s + self.wait_s

    @property
    def seconds(self) -> float:
        return self.fetch_s + self.collate_s


@dataclass(frozen=True)
class Load:
    """What a step asks of the loader: the work of a batch, and batches a step."""

    work: Work
    batches: float
    compute_s: float  # a step, all but data
    observed_s: float  # a step


def churn_share(timeline: Timeline, step_ms: float | None) -> float:
    """What the first touch of new memory takes of a step at the most: threads may touch their parts at once."""
    pages, each_us = timeline.runtime.pages, timeline.runtime.page_us
    if not pages or not each_us or not step_ms:
        return 0.0
    return min(1.0, pages * each_us / 1e3 / step_ms)


def training_loader(timeline: Timeline) -> tuple[int, LoaderFacts] | None:
    """The loader that feeds training: of several the one that gave most batches."""
    feeding = [(index, loader) for index, loader in enumerate(timeline.loaders) if loader.training]
    return max(feeding, key=lambda each: each[1].batches, default=None)


def rows_of(timeline: Timeline, loader: int) -> list[WorkerFacts]:
    """The workers of one loader that prepared anything."""
    return [worker for worker in timeline.workers if worker.loader == loader and worker.batches > 0]


def prefetch_of(loader: LoaderFacts) -> int:
    """Batches that each worker prepares ahead; torch's default where the script says nothing."""
    return loader.prefetch_factor or 2


def load_of(timeline: Timeline, summary: Summary, host: Host) -> Load | None:
    """What training asks of its loader; None where no step or no batch was seen."""
    found = training_loader(timeline)
    if found is None or not summary.n:
        return None
    rows = rows_of(timeline, found[0])
    if not rows:
        return None
    work = _work(rows, found[1], saturated(timeline, host.cores) is True)
    step = summary.seconds / summary.n
    return Load(work, batches_per_step(timeline), step - summary.ms(Stage.DATA) / 1e3, step)


def batches_per_step(timeline: Timeline) -> float:
    """Gradient accumulation takes several batches a step."""
    micro = timeline.steps.micro[timeline.steady_from :]
    return max(1.0, sum(micro) / len(micro)) if micro else 1.0


def saturated(timeline: Timeline, cores: int) -> bool | None:
    """Whether all cores were busy, by whomever; None where nobody looked."""
    if not timeline.gauges:
        return None
    used = [sum(g.cores) if g.cores else g.cpu + g.workers_cpu + g.foreign_cpu for g in timeline.gauges]
    stolen = [gauge.stolen or 0.0 for gauge in timeline.gauges]
    return median([one + other for one, other in zip(used, stolen, strict=True)]) >= SATURATED * cores


def used_by_others(timeline: Timeline) -> float:
    """Cores: those of foreign processes, and of other guests of the hypervisor."""
    return median([gauge.foreign_cpu + (gauge.stolen or 0.0) for gauge in timeline.gauges] or [0.0])


def disturbed(timeline: Timeline, host: Host) -> bool:
    """Whether others kept the machine busy, so that short waits may be their doing."""
    return bool(saturated(timeline, host.cores)) and used_by_others(timeline) >= DISTURBED * host.cores


def _work(rows: list[WorkerFacts], loader: LoaderFacts, starved_of_cores: bool) -> Work:
    batches = sum(row.batches for row in rows)
    fetch = sum(row.fetch_s for row in rows) / batches
    cpu = min(fetch, sum(row.cpu_s for row in rows) / batches)
    queue = min(fetch - cpu, _queued(rows, cpu, starved_of_cores))
    return Work(
        items=sum(row.items for row in rows) / batches,
        cpu_s=cpu,
        wait_s=fetch - cpu - queue,
        collate_s=_collate(sum(row.collate_s for row in rows) / batches, loader),
        queue_s=queue,
    )


def _collate(measured_s: float, loader: LoaderFacts) -> float:
    """Seconds of a batch, as the training process would collate it.

    In a worker torch's own collate writes into shared memory, which is a part of handing over. At least a
    third of it is taken for collating.
    """
    if not loader.num_workers or loader.collate != TORCHS_COLLATE:
        return measured_s
    return max(measured_s / 3, measured_s - WORKER_BATCH_S - WORKER_MIB_S * (loader.batch_bytes or 0) / 2**20)


def _queued(rows: list[WorkerFacts], cpu: float, starved_of_cores: bool) -> float:
    """Seconds of a batch that its items waited for a core, which is no I/O.

    Where nobody counted them, an item that is not on the CPU may do so on a machine without a free core.
    """
    counted = [row for row in rows if row.queued_s is not None]
    if counted:
        return sum(row.queued_s or 0.0 for row in counted) / sum(row.batches for row in counted)
    return QUEUED * cpu if starved_of_cores else 0.0


# Whether a dataset's items would fit into memory.


MARGIN = (
    0.25  # of the free memory stays free: the page cache, the workers and a larger validation batch need some
)
ITEM_OVERHEAD = 512  # bytes of a Python container and tensor headers around each item


@dataclass(frozen=True)
class Fit:
    """What is needed and what is free, in bytes."""

    needed: int
    free: int

    @property
    def fits(self) -> bool:
        return self.needed <= self.free * (1.0 - MARGIN)


def fit(items: int, item_bytes: int, free: int) -> Fit:
    """All items at once against the memory that is free."""
    return Fit(items * (item_bytes + ITEM_OVERHEAD), free)


def free_bytes(timeline: Timeline, host: Host) -> int:
    """Memory that is left while the job runs.

    The least that a gauge saw; where none looked, what the host had before the job started, less the job's
    own peak.
    """
    seen = [gauge.ram_free for gauge in timeline.gauges if gauge.ram_free is not None]
    if seen:
        return min(seen)
    peak = max((gauge.tree_rss or gauge.rss for gauge in timeline.gauges), default=0)
    return max(0, host.ram_free_bytes - peak)
