from __future__ import annotations

from dataclasses import replace

import pytest

from hotlap.diagnose.fixes import REMEDIES, fixes_of
from hotlap.diagnose.run import all_rules
from hotlap.facts.diagnosis import Cause, Finding, Severity
from hotlap.facts.timeline import Stage
from hotlap.ports.knob import Knob, Numerics
from hotlap.ports.target import Seam

KNOBS = {
    "num-workers",
    "prefetch-factor",
    "persistent-workers",
    "pin-memory",
    "non-blocking",
    "worker-threads",
    "cache-dataset",
    "batched-fetch",
    "loader",
    "batch-size",
    "accumulate",
    "scale-lr",
    "precision",
    "compile",
    "fused-optimizer",
    "channels-last",
    "single-precision",
    "tf32",
    "cudnn-benchmark",
    "sdpa",
    "grad-checkpointing",
    "set-to-none",
    "bucketing",
    "max-length",
    "log-every",
    "validate-every",
    "limit-validation",
    "checkpoint-every",
    "monitor-budget",
    "debug-mode-off",
    "keep-memory",
    "ddp-buckets",
    "static-graph",
}


class Sync(Knob):
    id = "sync-later"
    relieves = frozenset({Cause.HOST_SYNC})
    seam = Seam.STEP
    numerics = Numerics.BITWISE

    def settings(self, host, timeline):
        return (10, 100)

    def ceiling(self, timeline, host):
        return 0.4

    def apply(self, target, setting):
        raise NotImplementedError


def fixes(finding, sight, *knobs):
    return {(fix.knob, fix.setting): fix for fix in fixes_of(finding, sight, knobs)}


def looked_at(cause, sight):
    found = all_rules()[cause].examine(sight)
    assert found is not None
    return found


def test_every_fix_is_of_a_known_knob_and_lies_in_its_interval(make):
    timeline = make.timeline(40.0, {Stage.LOG: 0.3})
    for cause in REMEDIES:
        evidence = {
            "wanted": 4,
            "precision": "bf16",
            "batch": 8,
            "fixed_share": 0.5,
            "every": 1.0,
            "reason": "no-hardware",
            "threads": 4,
            "pinned": "no",
        }
        offers = fixes_of(Finding(cause, Severity.WARNING, 0.25, evidence), make.sight(timeline), ())
        for fix in offers:
            assert fix.knob in KNOBS
            assert fix.interval.low <= fix.predicted_gain <= fix.interval.high
        assert list(offers) == sorted(offers, key=lambda fix: -fix.predicted_gain)


def test_an_expensive_item_is_cached_only_where_that_is_sound(make):
    dataset = replace(make.loader().dataset, deterministic=True)
    sound = make.sight(make.fed(40.0, 0.8, loader={"dataset": dataset}))
    random = make.sight(make.fed(40.0, 0.8))
    found = looked_at(Cause.ITEM_CPU_BOUND, sound)
    cached = fixes(found, sound)["cache-dataset", "memory"]
    assert cached.predicted_gain == pytest.approx(4.0, rel=0.1)
    assert "cache-dataset" not in {knob for knob, _ in fixes(found, random)}


def test_workers_are_not_offered_to_an_iterable_dataset(make):
    sight = make.sight(make.fed(400.0, 0.8, loader={"iterable": True}))
    assert fixes(looked_at(Cause.ITEM_CPU_BOUND, sight), sight) == {}


def test_cheap_items_get_fewer_workers(make):
    loader = make.loader(num_workers=4, prefetch_factor=2, batch_bytes=4 * 2**20)
    rows = tuple(make.work(0.3, idle=0.95, number=each) for each in range(4))
    sight = make.sight(make.timeline(10.0, {Stage.DATA: 0.5}, loaders=(loader,), workers=rows))
    found = looked_at(Cause.WORKERS_TOO_MANY, sight)
    assert found.evidence["reason"] == "hand-over"
    assert found.evidence["wanted"] == 0
    assert ("num-workers", "0") in fixes(found, sight)


def test_a_batch_twice_the_size_pays_the_fixed_part_once(make):
    found = Finding(Cause.BATCH_TOO_SMALL, Severity.CRITICAL, 0.6, {"batch": 8.0, "fixed_share": 0.8})
    offers = fixes(found, make.sight(make.timeline()))
    assert set(offers) == {("batch-size", "16"), ("batch-size", "32")}
    assert offers["batch-size", "16"].interval.high == pytest.approx(2 / (2 * 0.2 + 0.8) - 1)
    assert offers["batch-size", "32"].predicted_gain > offers["batch-size", "16"].predicted_gain


def test_logging_ten_times_as_seldom(make):
    found = Finding(Cause.LOGGING_HEAVY, Severity.WARNING, 0.2, {"every": 1.0})
    (fix,) = fixes_of(found, make.sight(make.timeline()), ())
    assert (fix.knob, fix.setting) == ("log-every", "10")
    assert fix.interval.high == pytest.approx(1 / (1 - 0.18) - 1)


def test_a_cadence_that_was_not_measured_is_not_guessed(make):
    found = Finding(Cause.CHECKPOINT_HEAVY, Severity.WARNING, 0.2, {})
    assert fixes_of(found, make.sight(make.timeline()), ()) == ()


def test_copies_are_pinned_only_for_a_gpu(make):
    found = Finding(Cause.TRANSFER_EXPOSED, Severity.WARNING, 0.2, {"pinned": "no"})
    on_gpu = make.timeline(model=make.model(devices=("cuda:0",)))
    assert fixes_of(found, make.sight(make.timeline()), ()) == ()
    assert {knob for knob, _ in fixes(found, make.sight(on_gpu))} == {"pin-memory", "non-blocking"}


def test_a_knob_that_only_knows_its_ceiling_gets_the_widest_interval(make):
    found = Finding(Cause.HOST_SYNC, Severity.WARNING, 0.2, {})
    offers = fixes(found, make.sight(make.timeline()), Sync())
    assert set(offers) == {("sync-later", "10"), ("sync-later", "100")}
    interval = offers["sync-later", "10"].interval
    assert (interval.low, interval.high) == (0.0, pytest.approx(1 / 0.6 - 1))


def measured(make, step_ms=40.0, data=0.8, free_ms=8.0, **changes):
    """A job whose items may be cached, with steps on replayed batches."""
    loader = {"dataset": replace(make.loader().dataset, deterministic=True), **changes}
    timeline = make.fed(step_ms, data, loader=loader)
    free = {"free_input_s": free_ms / 1e3, "free_input_range_s": (free_ms * 0.98 / 1e3, free_ms * 1.02 / 1e3)}
    return make.sight(timeline), make.sight(replace(timeline, **free))


def test_a_measured_ceiling_narrows_what_a_cache_would_bring(make):
    guessed, known = measured(make, num_workers=2, prefetch_factor=2)
    found = looked_at(Cause.ITEM_CPU_BOUND, known)
    before, after = (fixes(found, sight)["cache-dataset", "memory"] for sight in (guessed, known))
    assert after.predicted_gain == pytest.approx(40 / 8 - 1, rel=0.02)
    assert after.interval.low <= after.predicted_gain <= after.interval.high
    assert after.interval.high - after.interval.low < (before.interval.high - before.interval.low) / 2


def test_no_fix_of_input_is_predicted_above_the_measured_ceiling(make):
    """Without its input a step took 30 of 40 ms, whatever the loader's times say."""
    loader = {"num_workers": 1, "prefetch_factor": 2}
    guessed, known = measured(make, free_ms=30.0, **loader)
    found = looked_at(Cause.ITEM_CPU_BOUND, known)
    above = {key for key, fix in fixes(found, guessed).items() if fix.predicted_gain > 0.5}
    assert above
    for key in above:
        assert fixes(found, known)[key].interval.high <= 40 / (30 * 0.98) - 1 + 0.01


def test_a_disturbed_ceiling_bounds_nothing(make):
    guessed, known = measured(make, free_ms=60.0)
    found = looked_at(Cause.ITEM_CPU_BOUND, known)
    assert fixes(found, known) == fixes(found, guessed)
