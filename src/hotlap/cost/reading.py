"""The loader model's figures, read off a timeline."""

from __future__ import annotations

from hotlap.cost.pipeline import Load, Setting, Work, giving_s
from hotlap.facts.ceiling import free_input, rehearsed
from hotlap.facts.host import Host
from hotlap.facts.summary import Summary
from hotlap.facts.timeline import Loader, Stage, Timeline, Worker
from hotlap.stats.quantile import median

SATURATED = 0.85  # of all cores busy in the median: who needs a core then may have to wait for it
QUEUED = 3.0  # times its CPU time: as long as work waits for a core where four want it at once

DISTURBED = 0.25  # of all cores used by others
TORCHS_COLLATE = "default_collate"
SECOND_THREAD = 0.3  # of a core: what the second hardware thread of a busy core adds, for most code


def churn_share(timeline: Timeline, host: Host, step_ms: float | None) -> float:
    """What the first touch of new memory takes of a step. Threads touch their parts of a tensor at once, as far as the
    cores are worth it."""
    pages, each_us = timeline.runtime.pages, timeline.runtime.page_us
    if not pages or not each_us or not step_ms:
        return 0.0
    at_once = max(1.0, min(timeline.runtime.threads, cores_for(timeline, host)))
    return min(1.0, pages * each_us / at_once / 1e3 / step_ms)


def training_loader(timeline: Timeline) -> tuple[int, Loader] | None:
    """The loader that feeds training: of several the one that gave most batches."""
    feeding = [(index, loader) for index, loader in enumerate(timeline.loaders) if loader.training]
    return max(feeding, key=lambda each: each[1].batches, default=None)


def rows_of(timeline: Timeline, loader: int) -> list[Worker]:
    """The workers of one loader that prepared anything."""
    return [worker for worker in timeline.workers if worker.loader == loader and worker.batches > 0]


def setting_of(loader: Loader) -> Setting:
    """The loader's setting as the script built it."""
    return Setting(loader.num_workers, loader.prefetch_factor or 2)


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
    compute = step - summary.ms(Stage.DATA) / 1e3
    data_cpu = work.cpu_s + work.collate_s if found[1].num_workers == 0 else 0.0
    batches = batches_per_step(timeline)
    cores = _compute_cores(timeline, host, compute / step, batches * data_cpu / step)
    return Load(work, batches, compute, cores, step, _free_s(timeline, summary), rehearsed(timeline, summary))


def _free_s(timeline: Timeline, summary: Summary) -> float | None:
    found = free_input(timeline, summary)
    return None if found is None or found.disturbed else found.step_ms / 1e3


def batches_per_step(timeline: Timeline) -> float:
    """Gradient accumulation takes several batches a step."""
    micro = timeline.steps.micro[timeline.steady_from :]
    return max(1.0, sum(micro) / len(micro)) if micro else 1.0


def saturated(timeline: Timeline, cores: int) -> bool | None:
    """Whether all cores were busy, by whomever; None where nobody looked."""
    if not timeline.gauges:
        return None
    used = [sum(g.cores) if g.cores else g.cpu + g.workers_cpu + g.foreign_cpu for g in timeline.gauges]
    return median(used) >= SATURATED * cores


def disturbed(timeline: Timeline, host: Host) -> bool:
    """Whether others kept the machine busy, so that short waits may be their doing."""
    if not saturated(timeline, host.cores):
        return False
    return median([gauge.foreign_cpu for gauge in timeline.gauges]) >= DISTURBED * host.cores


def cores_for(timeline: Timeline, host: Host) -> float:
    """Cores' worth of work to be had: a second thread of a core adds little, foreign work takes away."""
    physical = min(host.physical_cores or host.cores, host.cores)
    worth = host.cores_worth or physical + SECOND_THREAD * (host.cores - physical)
    foreign = median([gauge.foreign_cpu for gauge in timeline.gauges]) if timeline.gauges else 0.0
    return max(worth / 2, worth - foreign)


def _work(rows: list[Worker], loader: Loader, starved_of_cores: bool) -> Work:
    batches = sum(row.batches for row in rows)
    fetch = sum(row.fetch_s for row in rows) / batches
    cpu = min(fetch, sum(row.cpu_s for row in rows) / batches)
    queue = min(fetch - cpu, _queued(rows, cpu, starved_of_cores))
    return Work(
        items=sum(row.items for row in rows) / batches,
        cpu_s=cpu,
        wait_s=fetch - cpu - queue,
        collate_s=_collate(sum(row.collate_s for row in rows) / batches, loader),
        mib=(loader.batch_bytes or 0) / 2**20,
        queue_s=queue,
    )


def _collate(measured_s: float, loader: Loader) -> float:
    """Seconds of a batch, as the training process would collate it.

    In a worker torch's own collate writes into shared memory, which is a part of handing over. At least a
    third of it is taken for collating.
    """
    if not loader.num_workers or loader.collate != TORCHS_COLLATE:
        return measured_s
    return max(measured_s / 3, measured_s - giving_s((loader.batch_bytes or 0) / 2**20))


def _queued(rows: list[Worker], cpu: float, starved_of_cores: bool) -> float:
    """Seconds of a batch that its items waited for a core, which is no I/O.

    Where nobody counted them, an item that is not on the CPU may do so on a machine without a free core.
    """
    counted = [row for row in rows if row.queued_s is not None]
    if counted:
        return sum(row.queued_s or 0.0 for row in counted) / sum(row.batches for row in counted)
    return QUEUED * cpu if starved_of_cores else 0.0


def _compute_cores(timeline: Timeline, host: Host, compute_share: float, data_cpu_share: float) -> float:
    """What the training process used, less its own loading; as many as it has threads where nobody looked."""
    threads = max(1, min(timeline.runtime.threads, host.cores))
    on_device = timeline.model is not None and any("cuda" in each for each in timeline.model.devices)
    if not timeline.gauges or compute_share <= 0:
        return 1.0 if on_device else float(threads)
    used = median([gauge.cpu for gauge in timeline.gauges]) - data_cpu_share
    # Whoever computes on the CPU wants at least one core, also where others kept it from having one.
    return max(0.2 if on_device else 1.0, min(float(threads), used / compute_share))
