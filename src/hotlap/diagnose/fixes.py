"""What relieves a cause, and what each setting would bring.

A knob says which causes it relieves and which settings it has on a host; here stands how to predict
them. Until a knob is there, the table names its id and its settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hotlap.cost.amdahl import shrink
from hotlap.cost.ceiling import bounded, nearly_free
from hotlap.cost.memory import fit, free_bytes
from hotlap.cost.pipeline import Load, Setting, best_workers, cached, predict
from hotlap.cost.prediction import Prediction
from hotlap.cost.reading import cores_for
from hotlap.diagnose.compute import on_cuda
from hotlap.diagnose.inputs import Input, input_of
from hotlap.facts.ceiling import FreeInput, free_input
from hotlap.facts.diagnosis import Cause, Finding, Fix, Interval
from hotlap.ports.knob import Knob
from hotlap.ports.rule import Sight

LEAST_GAIN = 0.01  # a setting that brings less is not worth trying
# Knobs that save time of input alone: where steps with free input were measured, none of them brings more.
OF_INPUT = frozenset(
    {
        "num-workers",
        "prefetch-factor",
        "persistent-workers",
        "worker-threads",
        "cache-dataset",
        "batched-fetch",
        "loader",
    }
)
WAITING_WORKERS = 4  # for each core: items that wait leave the processor to others

Remedy = Callable[[Finding, Sight], Iterable[Fix]]


def fixes_of(finding: Finding, sight: Sight, knobs: Sequence[Knob]) -> tuple[Fix, ...]:
    """The settings that relieve the cause, the best prediction first."""
    offers = [fix for remedy in REMEDIES.get(finding.cause, ()) for fix in remedy(finding, sight)]
    if (most := _measured_ceiling(sight)) is not None:
        offers = [_below(fix, most) if fix.knob in OF_INPUT else fix for fix in offers]
    if knobs:
        relieving = {knob.id: knob for knob in knobs if finding.cause in knob.relieves}
        offers = [fix for fix in offers if fix.knob in relieving]
        unnamed = relieving.keys() - {fix.knob for fix in offers}
        offers += [fix for knob in sorted(unnamed) for fix in _from_ceiling(relieving[knob], sight)]
    return tuple(sorted(_once(offers), key=lambda fix: -(fix.predicted_gain or 0.0)))


def _measured_ceiling(sight: Sight) -> FreeInput | None:
    found = free_input(sight.timeline, sight.summary)
    return None if found is None or found.disturbed else found


def _below(fix: Fix, most: FreeInput) -> Fix:
    if fix.predicted_gain is None or fix.interval is None:
        return fix
    return _fix(fix.knob, fix.setting, bounded(fix.predicted_gain, fix.interval, most))


def _from_ceiling(knob: Knob, sight: Sight) -> list[Fix]:
    """Of a knob that only knows the most it could save: anything from nothing to that."""
    settings: Sequence[Any] = knob.settings(sight.host, sight.timeline)
    most = knob.ceiling(sight.timeline, sight.host)
    return [_fix(knob.id, str(setting), shrink(most, Interval(0.0, 1.0))) for setting in settings]


def _once(offers: Iterable[Fix]) -> Iterable[Fix]:
    met: set[tuple[str, str]] = set()
    for fix in offers:
        pays = fix.predicted_gain is None or fix.predicted_gain >= LEAST_GAIN
        if pays and (fix.knob, fix.setting) not in met:
            met.add((fix.knob, fix.setting))
            yield fix


def _fix(knob: str, setting: str, prediction: Prediction) -> Fix:
    return Fix(knob, setting, prediction.gain, prediction.interval)


def _part(knob: str, setting: str, low: float, high: float, only_cuda: bool = False) -> Remedy:
    """A setting that takes between `low` and `high` of the finding's share off the step."""

    def remedy(finding: Finding, sight: Sight) -> Iterable[Fix]:
        if not only_cuda or on_cuda(sight.timeline):
            yield _fix(knob, setting, shrink(finding.share, Interval(low, high)))

    return remedy


def _from_evidence(knob: str, key: str, low: float, high: float) -> Remedy:
    """A setting that the rule has worked out already."""

    def remedy(finding: Finding, sight: Sight) -> Iterable[Fix]:
        return _part(knob, f"{finding.evidence[key]}", low, high)(finding, sight)

    return remedy


def _workers(most_per_core: int = 1) -> Remedy:
    def remedy(_: Finding, sight: Sight) -> Iterable[Fix]:
        seen, cores = input_of(sight), cores_for(sight.timeline, sight.host)
        if seen is None or seen.loader.iterable:
            return
        candidates = range(sight.host.cores * most_per_core + 1)
        workers = best_workers(seen.load, seen.setting, candidates, cores)
        if workers != seen.setting.workers:
            then = Setting(workers, seen.setting.prefetch)
            yield _fix("num-workers", str(workers), predict(seen.load, seen.setting, then, cores))

    return remedy


def _cache(_: Finding, sight: Sight) -> Iterable[Fix]:
    seen = input_of(sight)
    if seen is not None and _cacheable(seen, sight):
        after: Load = cached(seen.load)
        cores = cores_for(sight.timeline, sight.host)
        prediction = predict(seen.load, seen.setting, seen.setting, cores, after)
        if (most := _measured_ceiling(sight)) is not None:
            exposed = 0.0 if seen.setting.workers else after.batches * after.work.seconds
            prediction = nearly_free(most, exposed * 1e3)
        yield _fix("cache-dataset", "memory", prediction)


def _cacheable(seen: Input, sight: Sight) -> bool:
    dataset = seen.loader.dataset
    if seen.loader.iterable or not dataset.deterministic or not dataset.length or not dataset.item_bytes:
        return False
    return fit(dataset.length, dataset.item_bytes, free_bytes(sight.timeline, sight.host)).fits


def _larger_batch(finding: Finding, _: Sight) -> Iterable[Fix]:
    """The fixed part is paid once for the larger batch; in the worse case half of it grows all the same."""
    batch, fixed = float(finding.evidence["batch"]), float(finding.evidence["fixed_share"])
    for times in (2, 4):
        saved = 1.0 - 1.0 / times
        setting = str(round(batch * times))
        yield _fix("batch-size", setting, shrink(fixed, Interval(saved / 2, saved)))


def _rarer(knob: str, times: int) -> Remedy:
    """An occasional stage that comes `times` as seldom."""

    def remedy(finding: Finding, _: Sight) -> Iterable[Fix]:
        every = finding.evidence.get("every")
        saved = 1.0 - 1.0 / times
        if every is not None:
            setting = str(max(1, round(float(every) * times)))
            yield _fix(knob, setting, shrink(finding.share, Interval(saved * 0.8, saved)))

    return remedy


def _monitor_budget(finding: Finding, _: Sight) -> Iterable[Fix]:
    left = min(1.0, 0.02 / finding.share)
    yield _fix("monitor-budget", "0.02", shrink(finding.share, Interval((1 - left) * 0.7, 1 - left)))


def _full_precision(finding: Finding, sight: Sight) -> Iterable[Fix]:
    if finding.evidence["reason"] == "no-hardware":
        yield from _part("precision", "fp32", 0.5, 1.8)(finding, sight)


def _one_thread(finding: Finding, sight: Sight) -> Iterable[Fix]:
    if float(finding.evidence["threads"]) > 1:
        yield from _part("worker-threads", "1", 0.3, 1.0)(finding, sight)


def _pinned(finding: Finding, sight: Sight) -> Iterable[Fix]:
    if finding.evidence["pinned"] == "no":
        yield from _part("pin-memory", "true", 0.3, 0.8, only_cuda=True)(finding, sight)


REMEDIES: dict[Cause, tuple[Remedy, ...]] = {
    Cause.INPUT_STARVED: (_workers(),),
    Cause.ITEM_CPU_BOUND: (_cache, _workers()),
    Cause.ITEM_IO_BOUND: (_cache, _workers(WAITING_WORKERS)),
    Cause.COLLATE_BOUND: (_workers(),),
    Cause.WORKERS_TOO_FEW: (_workers(),),
    Cause.WORKERS_TOO_MANY: (_workers(), _one_thread),
    Cause.WORKERS_RESTART: (_part("persistent-workers", "true", 0.8, 1.0),),
    Cause.PREFETCH_SHALLOW: (_from_evidence("prefetch-factor", "wanted", 0.3, 1.0),),
    Cause.REPEATED_WORK: (_cache,),
    Cause.TRANSFER_EXPOSED: (_pinned, _part("non-blocking", "true", 0.2, 0.9, only_cuda=True)),
    Cause.HOST_SYNC: (_part("log-every", "50", 0.0, 0.9),),
    Cause.LAUNCH_BOUND: (_part("compile", "default", 0.2, 0.8),),
    Cause.BATCH_TOO_SMALL: (_larger_batch,),
    Cause.UNCOMPILED: (_part("compile", "default", 0.0, 1.5),),
    Cause.RECOMPILING: (_part("compile", "dynamic", 0.3, 0.9),),
    Cause.PRECISION_UNUSED: (_from_evidence("precision", "precision", 0.3, 1.5),),
    Cause.PRECISION_INEFFECTIVE: (_full_precision,),
    Cause.OPTIMIZER_UNFUSED: (_part("fused-optimizer", "true", 0.6, 1.2),),
    Cause.PADDING_WASTE: (_part("bucketing", "tokens", 0.7, 1.2), _part("bucketing", "rows", 0.7, 1.1)),
    Cause.DEBUG_MODE_ON: (_part("debug-mode-off", "true", 0.5, 1.4),),
    Cause.FLOAT64_COMPUTE: (_part("single-precision", "true", 0.3, 1.7),),
    Cause.MEMORY_CHURN: (_part("keep-memory", "true", 0.5, 1.0),),
    Cause.LOGGING_HEAVY: (_rarer("log-every", 10),),
    Cause.VALIDATION_HEAVY: (_rarer("validate-every", 4), _part("limit-validation", "0.25", 0.6, 0.75)),
    Cause.CHECKPOINT_HEAVY: (_rarer("checkpoint-every", 4),),
    Cause.MONITORING_HEAVY: (_monitor_budget,),
    Cause.COMM_EXPOSED: (_part("ddp-buckets", "25", 0.0, 0.5), _part("static-graph", "true", 0.0, 0.3)),
}
