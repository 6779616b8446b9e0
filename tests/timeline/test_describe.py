"""Plain portraits become facts; what was not seen stays unknown."""

from __future__ import annotations

import pytest

from hotlap.facts.timeline import SourceLine, Stage, Steps
from hotlap.probe import marks
from hotlap.probe.marks import Kind
from hotlap.timeline import describe
from hotlap.timeline.fold import fold

MS = 1_000_000


@pytest.fixture
def seen(new_tape):
    return fold(new_tape().usual(4).raw)


def test_a_loader_has_what_its_portrait_says_and_what_was_seen_of_it(new_tape):
    tape = new_tape().play((Kind.LOADER, 30)).fact(marks.LOADER_ID, 0).usual(4)
    portrait = {
        "dataset": "Rows",
        "length": 100,
        "dataset_place": ["data.py", 4, "Rows"],
        "batch_size": 8,
        "num_workers": 2,
        "place": ["train.py", 9, "main"],
        "epochs": 1,
        "batch_bytes": 640,
    }
    (loader,) = describe.loaders({"loaders": [portrait]}, fold(tape.raw), {0: 3})
    assert (loader.dataset.kind, loader.dataset.length, loader.dataset.place.line) == ("Rows", 100, 4)
    assert (loader.batch_size, loader.num_workers, loader.worker_threads) == (8, 2, 3)
    assert (loader.batches, loader.training) == (4, True)
    assert loader.wait_s == pytest.approx(0.008)
    assert loader.startup_s == pytest.approx(0.030)
    assert loader.place == SourceLine("train.py", 9, "main")


def test_a_loader_that_was_never_iterated_feeds_no_training(seen):
    (_, unused) = describe.loaders({"loaders": [{"dataset": "A"}, {"dataset": "B"}]}, seen, {})
    assert (unused.batches, unused.training, unused.worker_threads) == (0, False, None)


def test_loaders_that_could_not_be_looked_at_are_left_out(seen):
    facts = {"loaders": [{"place": None}, {"dataset": "B"}, {}, {"dataset": "D"}]}
    assert describe.known_loaders(facts) == [1, 3]
    assert [each.dataset.kind for each in describe.loaders(facts, seen, {})] == ["B", "D"]
    assert describe.known_loaders({}) == []


MODEL = {
    "kind": "Net",
    "parameters": 10,
    "modules": 3,
    "dtypes": ["float32"],
    "devices": ["cpu"],
    "compiled": False,
}


def test_calls_are_those_of_a_training_step_though_they_were_counted_between_optimizer_steps(new_tape):
    tape = new_tape()
    for _ in range(10):
        tape.usual(1, optimizer=0).step(1, optimizer=1)
    facts = {"model": MODEL, "calls_per_optimizer_step": 6.0, "operators_per_optimizer_step": 9.0}
    model = describe.model(facts, fold(tape.raw))
    assert (model.calls_per_step, model.operators_per_step) == (12.0, 18.0)


def test_calls_that_were_not_counted_are_unknown(seen):
    assert describe.model({"model": MODEL}, seen).calls_per_step is None
    assert describe.model({}, seen) is None


def test_optimizers_have_their_steps_and_empty_portraits_are_passed_over(seen):
    plain = {"kind": "SGD", "parameters": 2, "elements": 10, "place": ["train.py", 3, "main"]}
    (optimizer, other) = describe.optimizers({"optimizers": [plain, {}, plain | {"place": None}]}, seen)
    assert (optimizer.kind, optimizer.steps, optimizer.place.line) == ("SGD", 4, 3)
    assert (other.steps, other.place) == (0, None)


def test_switches_name_the_line_that_turned_the_first_one_on():
    facts = {
        "runtime": {"threads": 2, "debug": ["deterministic", "detect_anomaly"], "backend": "gloo"},
        "switch_places": {"detect_anomaly": ["train.py", 12, "main"]},
        "operator_ns": 2500,
        "framework": "lightning",
    }
    runtime = describe.runtime(facts)
    assert runtime.debug == ("deterministic", "detect_anomaly")
    assert runtime.debug_place.line == 12, "the environment has no line, the next switch has"
    assert (runtime.threads, runtime.backend, runtime.operator_us) == (2, "gloo", 2.5)
    bare = describe.runtime({})
    assert (bare.debug_place, bare.operator_us, bare.framework) == (None, None, "plain")


def test_a_reason_to_compile_again_is_the_first_guard_that_failed():
    text = "0/1: tensor 'x' size mismatch at index 0. expected 8, actual 6\n- 0/0: another"
    assert describe.runtime({"recompiles": [text]}).recompiles == (
        "tensor 'x' size mismatch at index 0. expected 8, actual 6",
    )


def test_synchronisations_know_the_stage_that_they_were_made_in_most_often(new_tape):
    tape = new_tape()
    for _ in range(3):
        tape.batch(2).play((Kind.FORWARD, 1, (Kind.SYNC, 1))).fact(marks.SYNC_PLACE, 1)
        tape.play((Kind.BACKWARD, 4)).step(1)
    tape.batch(2).play((Kind.FORWARD, 2), (Kind.BACKWARD, 1, (Kind.SYNC, 1))).fact(marks.SYNC_PLACE, 1).step(
        1
    )
    rows = [
        ["a.py", 1, "f", ".item()", 3, 5 * MS],
        ["a.py", 2, "f", ".cpu()", 4, 9 * MS],
        ["a.py", 3, "f", "x", 9, 0],
    ]
    first, second, third = describe.syncs({"syncs": rows}, fold(tape.raw))
    assert (first.call, first.count, first.seconds, first.stage) == (".cpu()", 4, 0.009, Stage.FORWARD)
    assert (second.call, second.stage) == (".item()", Stage.OTHER)
    assert third.count == 9


def test_only_the_dearest_synchronisations_are_kept(seen):
    rows = [["a.py", line, "f", ".item()", 1, line * MS] for line in range(1, 61)]
    kept = describe.syncs({"syncs": rows}, seen)
    assert [point.place.line for point in kept] == list(range(60, 20, -1))


def steps(**columns):
    stages = {stage: columns.get(stage.value, [0] * 6) for stage in Stage}
    empty = [-1] * 6
    return Steps([0] * 6, [10 * MS] * 6, stages, empty, empty, empty, [1] * 6)


def test_a_cadence_is_what_an_occasional_stage_took_and_how_often_it_came():
    (log, validate) = describe.cadences(
        steps(log=[9, 1, 1, 1, 1, 1], validate=[0, 0, 0, 4 * MS, 0, 6 * MS]), 2
    )
    assert (log.stage, log.count, log.every_steps) == (Stage.LOG, 4, 1.0)
    assert (validate.stage, validate.count, validate.every_steps) == (Stage.VALIDATE, 2, 2.0)
    assert validate.seconds == pytest.approx(0.010)


def test_what_came_once_has_no_cadence_yet():
    (validate,) = describe.cadences(steps(validate=[0, 0, 0, 0, 0, 6 * MS]), 0)
    assert (validate.count, validate.every_steps) == (1, None)


def test_a_cadence_is_placed_where_it_is_decided():
    """At the call that starts a validation; under a trainer, where its arguments are."""
    seen = steps(validate=[0, 5, 0, 5, 0, 5], checkpoint=[0, 0, 5, 0, 0, 5])
    own = {"validation_place": ["train.py", 40, "main"]}
    checkpoint_at, validate_at = {}, {}
    for name, facts in {"own": own, "trainer": own | {"trainer_place": ["train.py", 9, ""]}}.items():
        found = {each.stage: each.place for each in describe.cadences(seen, 0, facts)}
        validate_at[name], checkpoint_at[name] = found[Stage.VALIDATE], found[Stage.CHECKPOINT]
    assert (validate_at["own"].line, checkpoint_at["own"]) == (40, None)
    assert (validate_at["trainer"].line, checkpoint_at["trainer"].line) == (9, 9)


def test_a_stage_that_never_came_has_no_cadence():
    assert describe.cadences(steps(), 0) == ()


def test_pauses_before_the_steady_state_do_not_count():
    found = describe.pauses([(0, 50 * MS), (100 * MS, 103 * MS), (200 * MS, 209 * MS)], [], since=100 * MS)
    assert (found.count, found.seconds, found.longest_s) == (2, pytest.approx(0.012), pytest.approx(0.009))
    assert describe.pauses([], [], 0).count == 0


def test_a_collection_while_code_is_compiled_is_the_compilers():
    compiles = [(0, 90 * MS), (150 * MS, 190 * MS)]
    found = describe.pauses([(160 * MS, 170 * MS), (200 * MS, 203 * MS)], compiles, since=100 * MS)
    assert (found.count, found.seconds) == (1, pytest.approx(0.003))
    assert found.compile_s == pytest.approx(0.040)


@pytest.mark.parametrize(("collecting", "logging"), [(MS // 50, 5 * MS), (MS // 8, 3 * MS // 2)])
def test_a_trainer_that_collects_figures_in_each_step_logs_when_it_does(collecting, logging):
    """Logging steps 10: bookkeeping in each step, which may be almost half of the time, and a log in each tenth."""
    log = [logging if number % 10 == 9 else collecting for number in range(40)]
    (found,) = describe.cadences(steps(log=log), 0)
    assert (found.count, found.every_steps) == (4, 10.0)


def test_a_log_that_waits_for_other_ranks_is_one_however_long_it_waits():
    waits = [MS, 30 * MS, 2 * MS, 12 * MS, 40 * MS, 5 * MS]
    log = [waits[number // 10] if number % 10 == 9 else MS // 20 for number in range(60)]
    (found,) = describe.cadences(steps(log=log), 0)
    assert (found.count, found.every_steps) == (6, 10.0)


def test_one_long_step_among_many_does_not_hide_the_others():
    log = [40 * MS if number == 7 else MS for number in range(100)]
    (found,) = describe.cadences(steps(log=log), 0)
    assert (found.count, found.every_steps) == (100, 1.0)
