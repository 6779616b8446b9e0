"""How long a step takes under other loader settings.

A step is as slow as the slowest of three: the consumer (compute plus taking over the batches), the
producers (the work of a batch, spread over the workers) and the machine (all CPU time, spread over the
cores). Without workers nothing overlaps. So items that need the CPU do not scale beyond the cores and take
them from the training process, items that wait scale with the workers, and a batch that is cheap to make is
dearer to hand over. Where numbers of workers were rehearsed on the job itself, the model only says how a setting
differs from the nearest one of those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import exp, fsum, log
from typing import NamedTuple

from hotlap.cost.prediction import Prediction
from hotlap.facts.diagnosis import Interval
from hotlap.facts.timeline import Rehearsal

# Hand-over of a batch between processes, measured on an idle two-core machine: per batch and per MiB. The
# worker copies into shared memory; the consumer wakes up, maps it and unpickles.
WORKER_BATCH_S, WORKER_MIB_S = 0.4e-3, 1.9e-3
CONSUMER_BATCH_S, CONSUMER_MIB_S = 0.8e-3, 0.3e-3
CACHED_ITEM_S = 3e-6  # indexing a tensor that is in memory
COPY_BYTES_PER_S = 4e9  # one core, memory to memory
NOISE = 0.05  # of a step: how far two runs of one setting lie apart on a quiet machine


class Setting(NamedTuple):
    """Of a DataLoader."""

    workers: int
    prefetch: int = 2


@dataclass(frozen=True)
class Work:
    """One batch: fetching all its items, collating them, and its size.

    Fetching is on the CPU, waits for a core (`queue_s`) or waits for something else (`wait_s`).
    """

    items: float
    cpu_s: float
    wait_s: float
    collate_s: float
    mib: float
    queue_s: float = 0.0

    @property
    def fetch_s(self) -> float:
        return self.cpu_s + self.queue_s + self.wait_s

    @property
    def seconds(self) -> float:
        return self.fetch_s + self.collate_s


@dataclass(frozen=True)
class Load:
    """What a step asks of the loader and of the machine. `observed_s` is the step as it was measured."""

    work: Work
    batches: float  # a step
    compute_s: float  # a step, all but data
    compute_cores: float  # that the training process keeps busy while it computes
    observed_s: float
    free_s: float | None = None  # a step whose input was free, where that was measured
    rehearsed: Mapping[int, Rehearsal] = field(default_factory=dict)  # by number of workers


class _Doubt(NamedTuple):
    hand_over: float = 1.0
    compute_cores: float | None = None
    sharpness: float = 0.0


# The corners of what is not known: the hand-over on this host, the cores that compute really needs, and how
# much two parts of a pipeline that are equally slow hold each other up.
_EXPECTED = _Doubt()
_BRIGHT = _Doubt(hand_over=0.5, compute_cores=1.0, sharpness=20.0)
_DARK = _Doubt(hand_over=2.0, sharpness=-4.0)


def step_s(load: Load, setting: Setting, cores: float, doubt: _Doubt = _EXPECTED) -> float:
    """Seconds of a step under the setting."""
    work = load.work
    if setting.workers <= 0:
        return load.compute_s + load.batches * work.seconds
    taking = doubt.hand_over * (CONSUMER_BATCH_S + CONSUMER_MIB_S * work.mib)
    giving = doubt.hand_over * giving_s(work.mib)
    compute_cores = load.compute_cores
    if doubt.compute_cores is not None:
        compute_cores = min(compute_cores, doubt.compute_cores)
    consumer = load.compute_s + load.batches * taking
    producers = load.batches * (work.seconds + giving) / setting.workers
    busy = load.batches * (work.cpu_s + work.collate_s + giving + taking) + compute_cores * load.compute_s
    sharpness = 6.0 + 2.0 * setting.prefetch + doubt.sharpness
    return _smooth_max((consumer, producers, busy / cores), sharpness)


def giving_s(mib: float) -> float:
    """What a worker spends on handing over a batch of this size."""
    return WORKER_BATCH_S + WORKER_MIB_S * mib


def predict(load: Load, now: Setting, then: Setting, cores: float, after: Load | None = None) -> Prediction:
    """The gain from `now` to `then`; `after` is the load where that changes too, as when items are cached."""
    if after is None and load.rehearsed:
        return _from_rehearsal(load, now, then, cores)
    target = after or load
    gains = [
        _step_now(load, now, then, cores, doubt) / step_s(target, then, cores, doubt) - 1.0
        for doubt in (_EXPECTED, _BRIGHT, _DARK)
    ]
    # Where the model misses the step that was measured, it will miss the next one about as much.
    miss = abs(log(load.observed_s / step_s(load, now, cores))) + NOISE
    low, high = (1.0 + min(gains)) * exp(-miss) - 1.0, (1.0 + max(gains)) * exp(miss) - 1.0
    return Prediction(gains[0], Interval(low, high))


def _from_rehearsal(load: Load, now: Setting, then: Setting, cores: float) -> Prediction:
    step, doubt = _foreseen(load, now, then, cores)
    gain = load.observed_s / step - 1.0
    return Prediction(gain, Interval((1.0 + gain) * exp(-doubt) - 1.0, (1.0 + gain) * exp(doubt) - 1.0))


def _foreseen(load: Load, now: Setting, then: Setting, cores: float) -> tuple[float, float]:
    """The step that is expected, and the doubt about its logarithm: the more, the more of it is the model's word."""
    known = {**load.rehearsed, now.workers: Rehearsal(now.workers, load.observed_s, 0.0)}
    nearest = max((each for each in known if each <= then.workers), default=min(known))
    anchor = now if nearest == now.workers else Setting(nearest)
    modelled = step_s(load, then, cores) / step_s(load, anchor, cores) if anchor != then else 1.0
    tried = known[nearest]
    return tried.step_s * modelled, NOISE + 2.0 * tried.spread + abs(log(modelled)) / 2.0


def _step_now(load: Load, now: Setting, then: Setting, cores: float, doubt: _Doubt) -> float:
    """The step to compare with: as it was measured where no worker will be left.

    What the model misses of a step with workers (processes that wake each other, a queue between them) goes
    with the last worker; between two settings with workers it stays, and cancels out.
    """
    return load.observed_s if now.workers > 0 >= then.workers else step_s(load, now, cores, doubt)


def best_workers(load: Load, now: Setting, candidates: Iterable[int], cores: float) -> int:
    """The fewest workers whose step is within 3 % of the quickest."""
    settings = {each: Setting(each, now.prefetch) for each in candidates}
    times = {
        each: _foreseen(load, now, then, cores)[0] if load.rehearsed else step_s(load, then, cores)
        for each, then in settings.items()
    }
    quickest = min(times.values())
    return min(workers for workers, time in times.items() if time <= 1.03 * quickest)


def cached(load: Load) -> Load:
    """The same load with all items in memory: what is left of an item is an index and a copy."""
    work = load.work
    fetch = work.items * CACHED_ITEM_S + work.mib * 2**20 / COPY_BYTES_PER_S
    return lighter(load, replace(work, cpu_s=min(work.fetch_s, fetch), wait_s=0.0, queue_s=0.0))


def lighter(load: Load, work: Work) -> Load:
    """The same load with less work for a batch.

    A training process that pauses for its input computes more slowly than one that does not: its threads fall asleep,
    its caches go cold. As much of that goes as of the pause, where both were measured.
    """
    if load.free_s is None or load.work.seconds <= 0:
        return replace(load, work=work)
    left = min(1.0, work.seconds / load.work.seconds)
    return replace(load, work=work, compute_s=load.free_s + (load.compute_s - load.free_s) * left)


def _smooth_max(parts: tuple[float, ...], sharpness: float) -> float:
    """A little above the largest where another is close to it: finite queues do not smooth everything out."""
    largest = max(parts)
    if largest <= 0:
        return 0.0
    total = fsum(pow(part / largest, sharpness) for part in parts)
    return largest * float(total ** (1.0 / sharpness))
