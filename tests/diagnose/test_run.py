from __future__ import annotations

import time
from array import array
from dataclasses import replace

import pytest

from hotlap.diagnose.run import all_rules, diagnose, rank, subsume
from hotlap.diagnose.severity import Weighed, severity_of
from hotlap.facts.codec import from_plain, to_plain
from hotlap.facts.diagnosis import HEALTHY, Basis, Cause, Diagnosis, Finding, Interval, Severity
from hotlap.facts.experiment import FREE_INPUT, ExperimentState
from hotlap.facts.timeline import Cadence, OptimizerFacts, Runtime, Stage, SyncPoint
from hotlap.plan.catalogue import all_knobs

RULES = all_rules()
KNOBS = tuple(all_knobs().values())
STEPS_MS = [2.0, 40.0, 1500.0]


def causes(diagnosis):
    return [each.cause for each in diagnosis.findings]


def exposed(cause, share, saved=0.0, severity=None):
    """A finding of exposed time; `saved` by the best experiment on it."""
    return Weighed(Finding(cause, severity or severity_of(share), share), saved, saved)


def shown(cause, saved, least=None, changes=0, attacked=1.0):
    """A finding that an experiment has confirmed."""
    severity = severity_of(saved, Basis.EXPERIMENT)
    finding = Finding(cause, severity, saved, basis=Basis.EXPERIMENT)
    return Weighed(finding, saved, saved if least is None else least, changes, attacked)


class TestSubsume:
    def test_a_narrow_cause_stands_for_the_wide_one(self):
        narrow, wide = exposed(Cause.ITEM_CPU_BOUND, 0.5), exposed(Cause.INPUT_STARVED, 0.6)
        assert subsume([wide, narrow], RULES) == [narrow]

    def test_not_if_it_explains_only_a_part(self):
        narrow, wide = shown(Cause.PREFETCH_SHALLOW, 0.2), exposed(Cause.INPUT_STARVED, 0.6)
        assert subsume([wide, narrow], RULES) == [wide, narrow]

    def test_not_if_the_trouble_would_look_smaller_than_it_is(self):
        narrow, wide = exposed(Cause.ITEM_CPU_BOUND, 0.18), exposed(Cause.INPUT_STARVED, 0.25)
        assert subsume([wide, narrow], RULES) == [wide, narrow]

    def test_other_causes_do_not_matter(self):
        wide = exposed(Cause.INPUT_STARVED, 0.6)
        assert subsume([wide, exposed(Cause.HOST_SYNC, 0.6)], RULES)[0] == wide


class TestRank:
    def test_by_what_was_measured(self):
        few, more = exposed(Cause.HOST_SYNC, 0.1), exposed(Cause.COLLATE_BOUND, 0.4)
        assert rank([few, more], RULES) == [more, few]
        less, most = shown(Cause.OPTIMIZER_UNFUSED, 0.12), shown(Cause.PRECISION_UNUSED, 0.4)
        assert rank([less, most], RULES) == [most, less]

    def test_of_equal_savings_the_more_certain_comes_first(self):
        vague, sure = shown(Cause.OPTIMIZER_UNFUSED, 0.2, 0.05), shown(Cause.PRECISION_UNUSED, 0.2, 0.18)
        assert rank([vague, sure], RULES) == [sure, vague]

    def test_of_about_equal_savings_the_one_that_changes_the_numbers_less_comes_first(self):
        gentle, other = (
            shown(Cause.OPTIMIZER_UNFUSED, 0.21, changes=2),
            shown(Cause.PRECISION_UNUSED, 0.22, changes=3),
        )
        assert rank([other, gentle], RULES) == [gentle, other]
        less = shown(Cause.OPTIMIZER_UNFUSED, 0.15, changes=2)
        assert rank([less, other], RULES) == [other, less]
        note = shown(Cause.OPTIMIZER_UNFUSED, 0.095, changes=2)
        warning = shown(Cause.PRECISION_UNUSED, 0.105, changes=3)
        assert rank([note, warning], RULES) == [warning, note]

    def test_of_about_equal_savings_the_one_that_attacks_less_of_the_step_says_why(self):
        narrow = shown(Cause.OPTIMIZER_UNFUSED, 0.20, attacked=0.3)
        wide = shown(Cause.PRECISION_UNUSED, 0.23, attacked=0.65)
        assert rank([wide, narrow], RULES) == [narrow, wide]

    def test_what_a_larger_batch_only_spreads_comes_first_where_its_own_remedy_brings_half(self):
        batch = shown(Cause.BATCH_TOO_SMALL, 0.42)
        fused, less = shown(Cause.OPTIMIZER_UNFUSED, 0.29), shown(Cause.OPTIMIZER_UNFUSED, 0.15)
        assert rank([batch, fused], RULES) == [fused, batch]
        assert rank([batch, less], RULES) == [batch, less]

    def test_of_two_that_one_experiment_relieves_the_larger_comes_first(self):
        part = exposed(Cause.COLLATE_BOUND, 0.13, saved=0.28, severity=Severity.WARNING)
        most = exposed(Cause.ITEM_CPU_BOUND, 0.17, saved=0.28, severity=Severity.WARNING)
        assert rank([part, most], RULES) == rank([most, part], RULES) == [most, part]

    def test_exposed_time_ranks_by_at_least_what_a_change_saved(self):
        validation = exposed(Cause.VALIDATION_HEAVY, 0.35)
        relieved = exposed(Cause.ITEM_IO_BOUND, 0.3, saved=0.36, severity=Severity.CRITICAL)
        assert rank([validation, relieved], RULES) == [relieved, validation]

    def test_where_two_explain_the_same_time_as_their_rules_say(self):
        repeated, item = shown(Cause.REPEATED_WORK, 0.6), exposed(Cause.ITEM_CPU_BOUND, 0.7, saved=0.6)
        assert rank([item, repeated], RULES) == [repeated, item]

    def test_a_saving_of_half_a_bound_explains_it_but_not_of_half_a_saving(self):
        workers, bound = shown(Cause.WORKERS_TOO_FEW, 0.45), exposed(Cause.ITEM_CPU_BOUND, 0.85)
        assert rank([bound, workers], RULES) == [workers, bound]
        cached = exposed(Cause.ITEM_CPU_BOUND, 0.85, saved=0.83)
        assert rank([cached, workers], RULES) == [cached, workers]

    def test_a_rank_that_monitors_alone_is_a_straggler_first(self):
        monitors, straggler = exposed(Cause.MONITORING_HEAVY, 0.32), exposed(Cause.STRAGGLER_RANK, 0.3)
        assert rank([monitors, straggler], RULES) == [straggler, monitors]

    def test_a_note_never_comes_before_a_warning(self):
        note = exposed(Cause.STEP_OUTLIERS, 0.35, severity=Severity.NOTE)
        warning = exposed(Cause.INPUT_STARVED, 0.3)
        assert rank([note, warning], RULES) == [warning, note]

    def test_memory_ranks_with_its_severity(self):
        memory = exposed(Cause.MEMORY_GROWTH, 0.0, severity=Severity.CRITICAL)
        large, small = exposed(Cause.ITEM_CPU_BOUND, 0.7), shown(Cause.OPTIMIZER_UNFUSED, 0.2)
        assert rank([small, memory, large], RULES) == [large, memory, small]


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_steady_job_is_healthy(make, step_ms):
    diagnosis = diagnose([make.timeline(step_ms)], make.host(), KNOBS)
    assert diagnosis.verdict == HEALTHY
    assert diagnosis.findings == ()
    assert {each.cause for each in diagnosis.untested} <= {Cause.UNCOMPILED, Cause.BATCH_TOO_SMALL}


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_job_with_a_little_of_everything_is_not_nagged(make, step_ms):
    """Waits that healthy jobs have too: at most notes."""
    shares = {
        Stage.DATA: 0.15,
        Stage.LOG: 0.05,
        Stage.VALIDATE: 0.12,
        Stage.CHECKPOINT: 0.06,
        Stage.OTHER: 0.05,
    }
    timeline = make.timeline(
        step_ms,
        shares,
        loaders=(make.loader(num_workers=2, prefetch_factor=2, persistent_workers=True, batch_bytes=4000),),
        workers=tuple(make.work(step_ms, idle=0.5, number=each) for each in range(2)),
        optimizers=(OptimizerFacts("AdamW", 100, 10**6, steps=205),),
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


def repeating(make, epochs, data=0.85, cpu=1.0, **changes):
    """Costly items that come out the same each time, without workers."""
    dataset = replace(make.loader().dataset, deterministic=True)
    loader = {"dataset": dataset, "epochs": epochs}
    return make.fed(40.0, data, cpu=cpu, loader=loader, lines=(make.line(Stage.DATA, 0.71),), **changes)


def cached_and_fed(make, cache, workers, free=5.0):
    return make.experiments(
        make.tried(FREE_INPUT, True, free),
        make.tried("cache-dataset", "memory", cache),
        make.tried("num-workers", 2, workers),
    )


@pytest.mark.parametrize(("epochs", "first"), [(2, Cause.ITEM_CPU_BOUND), (20, Cause.REPEATED_WORK)])
def test_costly_items_are_repeated_work_where_they_were_made_before(make, epochs, first):
    """With a cache that was measured; before that its gain stands under the line that costs."""
    host, tried = make.host(cores=2, physical_cores=2), cached_and_fed(make, 4.0, 0.7)
    diagnosis = diagnose([repeating(make, epochs)], host, KNOBS, tried)
    assert diagnosis.verdict == first
    item = next(each for each in diagnosis.findings if each.cause is Cause.ITEM_CPU_BOUND)
    assert (item.where.file, item.where.line) == ("dataset.py", 366)
    assert [fix.measured_gain for fix in item.fixes] == [4.0, 0.7]
    assert item.basis is Basis.EXPOSED
    assert Cause.INPUT_STARVED not in causes(diagnosis)


def test_items_that_workers_hide_are_too_few_workers(make):
    timeline, host = make.fed(200.0, 0.4, cpu=0.05), make.host(cores=2)
    tried = make.experiments(make.tried(FREE_INPUT, True, 0.66), make.tried("num-workers", 2, 0.6))
    diagnosis = diagnose([timeline], host, KNOBS, tried)
    first = diagnosis.findings[0]
    assert (first.cause, first.basis, first.evidence["wanted"]) == (
        Cause.WORKERS_TOO_FEW,
        Basis.EXPERIMENT,
        2,
    )
    assert first.share == pytest.approx(1 - 1 / 1.6)


def test_items_that_workers_hide_in_part_keep_their_own_name(make):
    timeline, host = make.fed(200.0, 0.9, cpu=0.02), make.host(cores=2)
    tried = make.experiments(make.tried(FREE_INPUT, True, 9.0), make.tried("num-workers", 2, 0.5))
    diagnosis = diagnose([timeline], host, KNOBS, tried)
    assert diagnosis.verdict == Cause.ITEM_IO_BOUND
    assert Cause.WORKERS_TOO_FEW not in causes(diagnosis)
    assert (diagnosis.findings[0].fixes[0].knob, diagnosis.findings[0].fixes[0].measured_gain) == (
        "num-workers",
        0.5,
    )


def test_workers_are_too_many_only_where_fewer_were_faster(make):
    loader = make.loader(num_workers=6, prefetch_factor=2)
    rows = tuple(make.work(10.0, idle=0.5, number=each) for each in range(6))
    timeline = make.timeline(40.0, {Stage.DATA: 0.01}, loaders=(loader,), workers=rows)
    host = make.host(cores=2)

    def found(*tried):
        return diagnose([timeline], host, KNOBS, make.experiments(*tried))

    assert Cause.WORKERS_TOO_MANY in {each.cause for each in found().untested}
    waits = found(make.tried("num-workers", 0, None))
    (few,) = (each for each in waits.untested if each.cause is Cause.WORKERS_TOO_MANY)
    assert [(each.knob, each.setting) for each in few.fixes] == [("num-workers", "0")]
    slower = found(make.tried("num-workers", 2, -0.01), make.tried("num-workers", 0, 0.02))
    assert slower.findings == ()
    assert Cause.WORKERS_TOO_MANY not in {each.cause for each in slower.untested}
    more = found(make.tried("num-workers", 8, 0.5), make.tried("num-workers", 0, 0.0))
    assert Cause.WORKERS_TOO_MANY not in causes(more)
    fewer = found(make.tried("num-workers", 2, 0.3))
    assert fewer.verdict == Cause.WORKERS_TOO_MANY
    assert fewer.findings[0].evidence["wanted"] == 2


def test_no_change_of_the_input_saves_more_than_free_input(make):
    """On a busy machine two blocks of an experiment may show anything."""
    tried = make.experiments(make.tried(FREE_INPUT, True, 0.3), make.tried("num-workers", 2, 1.4))
    diagnosis = diagnose([make.fed(40.0, 0.2)], make.host(), KNOBS, tried)
    assert diagnosis.findings[0].cause is Cause.WORKERS_TOO_FEW
    assert diagnosis.findings[0].share == pytest.approx(1 - 1 / 1.32)


def test_free_input_bounds_what_waiting_for_data_costs(make):
    timeline = make.fed(40.0, 0.6)
    bounded = diagnose([timeline], make.host(), KNOBS, make.experiments(make.tried(FREE_INPUT, True, 0.2)))
    assert bounded.findings[0].share == pytest.approx(1 - 1 / 1.22)
    assert bounded.verdict == HEALTHY
    nothing = diagnose([timeline], make.host(), KNOBS, make.experiments(make.tried(FREE_INPUT, True, -0.05)))
    assert nothing.findings == ()


def test_workers_that_take_cores_from_the_training_cost_more_than_the_wait(make):
    """The step waits a tenth of its time, and with free input it takes a fifth of it."""
    timeline, host = make.fed(40.0, 0.1), make.host()
    found = diagnose([timeline], host, KNOBS, make.experiments(make.tried(FREE_INPUT, True, 4.0))).findings
    alone = diagnose([timeline], host, KNOBS).findings
    assert [each.severity for each in alone] == [Severity.NOTE] * len(alone)
    assert (found[0].cause, found[0].severity) == (alone[0].cause, Severity.CRITICAL)
    assert found[0].share == pytest.approx((1 - 1 / 4.98) * alone[0].share / 0.1)


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


def test_a_hypothesis_speaks_only_when_its_experiment_has_won(make):
    timeline, host = make.timeline(), make.host(cpu_bf16=True)

    def found(*tried):
        return diagnose([timeline], host, KNOBS, make.experiments(*tried))

    def untested(diagnosis):
        return Cause.PRECISION_UNUSED in {each.cause for each in diagnosis.untested}

    assert untested(found())
    assert untested(found(make.tried("precision", "bf16-mixed", None)))
    assert untested(found(make.tried("precision", "bf16-mixed", None, ExperimentState.REFUSED)))
    for state in (ExperimentState.NO_GAIN, ExperimentState.UNDECIDED):
        silent = found(make.tried("precision", "bf16-mixed", 0.02, state))
        assert (silent.findings, untested(silent)) == ((), False)
    won = found(make.tried("precision", "bf16-mixed", 0.5), make.tried("precision", "16-mixed", 0.1))
    first = won.findings[0]
    assert (first.cause, first.basis, first.severity) == (
        Cause.PRECISION_UNUSED,
        Basis.EXPERIMENT,
        Severity.CRITICAL,
    )
    assert first.share == pytest.approx(1 / 3)
    assert [(fix.setting, fix.measured_gain) for fix in first.fixes] == [
        ("bf16-mixed", 0.5),
        ("16-mixed", 0.1),
    ]
    assert first.fixes[0].interval == Interval(0.48, 0.52)


def test_a_small_batch_comes_before_the_launches_it_does_not_pay_for(make):
    timeline = make.timeline(1.0, model=make.model(calls_per_step=25.0))
    small = replace(timeline.steps, samples=[4] * len(timeline.steps))
    large = replace(timeline.steps, samples=[512] * len(timeline.steps))
    tried = make.experiments(make.tried("batch-size", 8, 0.6), make.tried("compile", "default", 0.4))
    answers = [
        diagnose([replace(timeline, steps=steps)], make.host(), KNOBS, tried).verdict
        for steps in (small, large)
    ]
    assert answers == [Cause.BATCH_TOO_SMALL, Cause.LAUNCH_BOUND]


def test_a_larger_batch_that_wins_is_always_explained(make):
    tried = make.experiments(make.tried("batch-size", 128, 0.2))
    assert diagnose([make.timeline(40.0)], make.host(), KNOBS, tried).verdict == Cause.BATCH_TOO_SMALL


def test_debugging_comes_before_what_it_inflates(make):
    timeline = make.timeline(
        4.0, runtime=Runtime(2, debug=("detect_anomaly",)), model=make.model(calls_per_step=60.0)
    )
    tried = make.experiments(make.tried("debug-mode-off", True, 2.8), make.tried("batch-size", 128, 3.0))
    assert diagnose([timeline], make.host(), KNOBS, tried).verdict == Cause.DEBUG_MODE_ON


def test_the_same_facts_give_the_same_answer(make):
    facts = [repeating(make, 20)], make.host(), KNOBS, cached_and_fed(make, 4.0, 0.7)
    assert diagnose(*facts) == diagnose(*facts)


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
    tried = make.experiments(make.tried("num-workers", 4, 0.8))
    diagnosis = diagnose([make.fed(40.0, 0.8)], make.host(), KNOBS, tried)
    assert diagnosis.findings[0].fixes
    assert diagnosis.untested
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


def test_the_forward_pass_of_a_model_is_no_monitoring(make):
    """`model.forward(x)` passes by what names the stage."""
    line = make.line(Stage.OTHER, 0.9, file="train.py")
    model = replace(line, place=replace(line.place, function="Net.forward.<locals>.<listcomp>"))
    found = [
        RULES[Cause.MONITORING_HEAVY].examine(
            make.sight(make.timeline(40.0, {Stage.OTHER: 0.4}, lines=(each,)))
        )
        for each in (line, model)
    ]
    assert found[0] is not None and found[1] is None


def test_a_finding_names_only_settings_that_won(make):
    """What was measured to gain and may as well be noise stands among the experiments, and is no advice."""
    timeline = make.timeline(40.0, {Stage.DATA: 0.4}, loaders=(make.loader(num_workers=1),))
    unsure = replace(
        make.tried("num-workers", 4, 0.2, ExperimentState.UNDECIDED), interval=Interval(-0.1, 0.5)
    )
    for tried, named in ((unsure, []), (make.tried("num-workers", 4, 0.2), ["num-workers"])):
        found = diagnose([timeline], make.host(), KNOBS, make.experiments(tried)).findings
        assert [fix.knob for fix in found[0].fixes] == named
