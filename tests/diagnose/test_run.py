from __future__ import annotations

import time
from array import array
from dataclasses import replace

import pytest

from hotlap.diagnose.run import all_rules, diagnose, rank, subsume
from hotlap.diagnose.severity import severity_of
from hotlap.facts.codec import from_plain, to_plain
from hotlap.facts.diagnosis import HEALTHY, Cause, Diagnosis, Finding, Severity
from hotlap.facts.timeline import Cadence, Optimizer, Runtime, Stage, SyncPoint

RULES = all_rules()
STEPS_MS = [2.0, 40.0, 1500.0]


def found(cause, share, severity=None):
    return Finding(cause, severity or severity_of(share), share)


def causes(diagnosis):
    return [each.cause for each in diagnosis.findings]


class TestSubsume:
    def test_a_narrow_cause_stands_for_the_wide_one(self):
        narrow, wide = found(Cause.ITEM_CPU_BOUND, 0.5), found(Cause.INPUT_STARVED, 0.6)
        assert subsume([wide, narrow], RULES) == [narrow]

    def test_not_if_it_explains_only_a_part(self):
        narrow, wide = found(Cause.PREFETCH_SHALLOW, 0.2), found(Cause.INPUT_STARVED, 0.6)
        assert subsume([wide, narrow], RULES) == [wide, narrow]

    def test_not_if_the_trouble_would_look_smaller_than_it_is(self):
        narrow, wide = found(Cause.ITEM_CPU_BOUND, 0.08), found(Cause.INPUT_STARVED, 0.15)
        assert subsume([wide, narrow], RULES) == [wide, narrow]

    def test_other_causes_do_not_matter(self):
        wide = found(Cause.INPUT_STARVED, 0.6)
        assert subsume([wide, found(Cause.HOST_SYNC, 0.6)], RULES)[0] == wide


class TestRank:
    def test_by_what_acting_would_bring(self):
        few, more = found(Cause.HOST_SYNC, 0.1), found(Cause.COLLATE_BOUND, 0.4)
        assert rank([few, more], RULES) == [more, few]

    def test_about_equals_as_their_rules_say(self):
        repeated, item = found(Cause.REPEATED_WORK, 0.62), found(Cause.ITEM_CPU_BOUND, 0.6)
        assert rank([repeated, item], RULES) == [item, repeated]
        much = found(Cause.REPEATED_WORK, 0.9)
        assert rank([much, item], RULES) == [much, item]

    def test_a_rank_that_monitors_alone_is_a_straggler_first(self):
        monitors, straggler = found(Cause.MONITORING_HEAVY, 0.32), found(Cause.STRAGGLER_RANK, 0.3)
        assert rank([monitors, straggler], RULES) == [straggler, monitors]

    def test_a_note_never_comes_before_a_warning(self):
        note, warning = found(Cause.UNCOMPILED, 0.25, Severity.NOTE), found(Cause.GC_PAUSES, 0.1)
        assert rank([note, warning], RULES) == [warning, note]

    def test_memory_ranks_with_the_shares_of_its_severity(self):
        memory = found(Cause.MEMORY_GROWTH, 0.0, Severity.CRITICAL)
        large, small = found(Cause.ITEM_CPU_BOUND, 0.7), found(Cause.OPTIMIZER_UNFUSED, 0.2)
        assert rank([small, memory, large], RULES) == [large, memory, small]


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_steady_job_is_healthy(make, step_ms):
    diagnosis = diagnose([make.timeline(step_ms)], make.host())
    assert diagnosis.verdict == HEALTHY
    assert diagnosis.findings == ()


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_job_with_a_little_of_everything_is_not_nagged(make, step_ms):
    """Each cause below 5 % of a step: at most notes."""
    shares = {
        Stage.DATA: 0.04,
        Stage.LOG: 0.03,
        Stage.VALIDATE: 0.04,
        Stage.CHECKPOINT: 0.02,
        Stage.OTHER: 0.03,
    }
    timeline = make.timeline(
        step_ms,
        shares,
        loaders=(make.loader(num_workers=2, prefetch_factor=2, persistent_workers=True, batch_bytes=4000),),
        workers=tuple(make.work(step_ms, idle=0.5, number=each) for each in range(2)),
        optimizers=(Optimizer("AdamW", 100, 10**6, steps=205),),
        syncs=(SyncPoint(make.place(), "Tensor.item", 205, 0.02 * step_ms * 0.205),),
        cadences=tuple(
            Cadence(stage, 20, 1.0, 10.0) for stage in (Stage.LOG, Stage.VALIDATE, Stage.CHECKPOINT)
        ),
        lines=(make.line(Stage.OTHER),),
        gauges=make.gauges(cpu=1.2, workers_cpu=1.0),
    )
    diagnosis = diagnose([timeline], make.host())
    assert {each.cause: each.share for each in diagnosis.findings if each.severity is not Severity.NOTE} == {}
    assert diagnosis.verdict == HEALTHY


@pytest.mark.parametrize("step_ms", [40.0, 400.0, 4000.0])
@pytest.mark.parametrize("epochs", [1, 2, 20])
def test_costly_deterministic_items_on_two_cores(make, step_ms, epochs):
    """The line that costs comes first, then the cache, then the workers."""
    dataset = replace(make.loader().dataset, deterministic=True)
    line = make.line(Stage.DATA, 0.71)
    timeline = make.fed(step_ms, 0.85, loader={"dataset": dataset, "epochs": epochs}, lines=(line,))
    diagnosis = diagnose([timeline], make.host(cores=2, physical_cores=2))
    first = diagnosis.findings[0]
    assert diagnosis.verdict == Cause.ITEM_CPU_BOUND
    assert first.severity is Severity.CRITICAL
    assert (first.where.file, first.where.line) == ("dataset.py", 366)
    assert first.evidence["callee"] == "scaler.transform"
    assert set(causes(diagnosis)) == {Cause.ITEM_CPU_BOUND, Cause.REPEATED_WORK, Cause.WORKERS_TOO_FEW}
    assert Cause.INPUT_STARVED not in causes(diagnosis)
    assert first.fixes[0].knob == "cache-dataset"


def test_many_free_cores_make_workers_the_first_thing_to_try(make):
    timeline = make.fed(400.0, 0.6)
    diagnosis = diagnose([timeline], make.host(cores=16, physical_cores=16))
    assert causes(diagnosis)[:2] == [Cause.WORKERS_TOO_FEW, Cause.ITEM_CPU_BOUND]
    assert diagnosis.findings[0].fixes[0].knob == "num-workers"


def test_waiting_items_that_two_workers_hide(make):
    timeline = make.fed(200.0, 0.4, cpu=0.05)
    assert diagnose([timeline], make.host(cores=2)).verdict == Cause.WORKERS_TOO_FEW


def test_waiting_items_that_all_workers_do_not_hide(make):
    timeline = make.fed(200.0, 0.9, cpu=0.02)
    diagnosis = diagnose([timeline], make.host(cores=2))
    assert diagnosis.verdict == Cause.ITEM_IO_BOUND
    fix = diagnosis.findings[0].fixes[0]
    assert (fix.knob, int(fix.setting) > 2) == ("num-workers", True)


def test_waiting_items_that_are_the_same_in_each_epoch(make):
    dataset = replace(make.loader().dataset, deterministic=True)
    timeline = make.fed(200.0, 0.9, cpu=0.02, loader={"dataset": dataset, "epochs": 20})
    assert diagnose([timeline], make.host(cores=2)).verdict == Cause.REPEATED_WORK


def test_a_loop_without_a_loader_waits_for_its_line(make):
    timeline = make.timeline(40.0, {Stage.DATA: 0.5}, lines=(make.line(),))
    diagnosis = diagnose([timeline], make.host())
    assert diagnosis.verdict == Cause.INPUT_STARVED
    assert diagnosis.findings[0].where.line == 366


def test_a_long_stall_in_the_data_is_an_outlier_and_no_lack_of_workers(make):
    column = [4000.0 if index % 60 == 30 else 0.0 for index in range(200)]
    timeline = make.timeline(
        40.0,
        columns={Stage.DATA: column},
        loaders=(make.loader(num_workers=2, prefetch_factor=2),),
        workers=tuple(make.work(20.0, idle=0.6, number=each) for each in range(2)),
    )
    diagnosis = diagnose([timeline], make.host())
    assert diagnosis.verdict == Cause.STEP_OUTLIERS
    assert diagnosis.findings[0].evidence["stage"] == "data"


def test_debugging_comes_before_what_it_inflates(make):
    timeline = make.timeline(
        4.0, runtime=Runtime(2, debug=("detect_anomaly",)), model=make.model(calls_per_step=60.0)
    )
    steps = replace(timeline.steps, samples=[8] * len(timeline.steps))
    diagnosis = diagnose([replace(timeline, steps=steps)], make.host())
    assert diagnosis.verdict == Cause.DEBUG_MODE_ON


def test_a_small_batch_comes_before_the_launches_it_does_not_pay_for(make):
    timeline = make.timeline(1.0, model=make.model(calls_per_step=25.0))
    small = replace(timeline.steps, samples=[4] * len(timeline.steps))
    large = replace(timeline.steps, samples=[512] * len(timeline.steps))
    assert diagnose([replace(timeline, steps=small)], make.host()).verdict == Cause.BATCH_TOO_SMALL
    assert diagnose([replace(timeline, steps=large)], make.host()).verdict == Cause.LAUNCH_BOUND


def test_a_heavy_optimizer_is_no_small_batch(make):
    timeline = make.timeline(
        70.0, {Stage.OPTIMIZER: 0.55}, optimizers=(Optimizer("Adam", 16, 4_000_000, steps=205),)
    )
    steps = replace(timeline.steps, samples=[16] * len(timeline.steps))
    diagnosis = diagnose([replace(timeline, steps=steps)], make.host())
    assert causes(diagnosis) == [Cause.OPTIMIZER_UNFUSED]


def test_the_slowest_rank_is_looked_at(make):
    quick = make.timeline(40.0, {Stage.BACKWARD: 0.5}, rank=0, world=2)
    slow = replace(make.fed(40.0, 0.5), rank=1, world=2)
    diagnosis = diagnose([quick, slow], make.host())
    assert diagnosis.verdict == Cause.STRAGGLER_RANK
    assert diagnosis.findings[0].evidence["rank"] == 1
    assert diagnosis.findings[0].evidence["stage"] == "data"
    assert Cause.ITEM_CPU_BOUND in causes(diagnosis)


def test_nothing_seen_gives_no_findings(make):
    timeline = make.timeline()
    assert diagnose([], make.host()) == Diagnosis()
    assert diagnose([replace(timeline, steady_from=len(timeline.steps))], make.host()) == Diagnosis()


def test_a_diagnosis_survives_json(make, tmp_path):
    diagnosis = diagnose([make.fed(40.0, 0.8)], make.host())
    assert diagnosis.findings[0].fixes
    assert from_plain(Diagnosis, to_plain(diagnosis)) == diagnosis


def test_a_hundred_thousand_steps_are_quick(make):
    timeline = make.timeline(
        40.0,
        {Stage.DATA: 0.5},
        count=100_000,
        loaders=(make.loader(),),
        workers=(make.work(20.0),),
        gauges=make.gauges(2000),
    )
    packed = {stage: array("q", column) for stage, column in timeline.steps.stages.items()}
    timeline = replace(
        timeline, steps=replace(timeline.steps, wall=array("q", timeline.steps.wall), stages=packed)
    )
    begin = time.process_time()
    diagnosis = diagnose([timeline], make.host())
    spent = time.process_time() - begin
    assert diagnosis.findings
    assert spent < 4.0  # twice the budget: other work may share the cores
    print(f"{spent:.2f} s")
