"""Passes of experiments: what is tried together, alone, again or not at all, beside made-up ones."""

from __future__ import annotations

import math

import pytest
from worlds import (
    ALL_LIVE,
    BF16,
    CACHE,
    COMPILE,
    EVERY,
    EXACT,
    FUSED,
    LARGER,
    LAYOUT,
    WORKERS,
    World,
    offer,
    rulings,
    trials_of,
)

from hotlap.facts.verdict import Ruling
from hotlap.ports.knob import Numerics
from hotlap.search.candidates import NO_TIME, SearchBudget, Wish


def test_what_wins_the_experiments_is_tried_as_one_plan(searched):
    """One duel and one answer of the guard for both; the gain of each is what its experiment has shown."""
    world = World({"fused-optimizer": 1.1, "precision": 1.3}, switches=ALL_LIVE)
    tuning, written = searched(world, [FUSED, BF16, LAYOUT])
    assert trials_of(world)[:2] == [{}, {"precision": "bf16-mixed", "fused-optimizer": "fused"}]
    assert written.settings == {"precision": "bf16-mixed", "fused-optimizer": "fused"}
    kept = [each for each in tuning.verdicts if each.ruling is Ruling.KEEP]
    assert [each.gain.value for each in kept] == pytest.approx([0.3, 0.1], abs=0.02)
    assert all(each.live for each in kept)
    assert tuning.gain.value == pytest.approx(0.43, abs=0.03)


def test_what_brings_nothing_in_its_experiment_has_no_processes_of_its_own(searched):
    world = World({}, switches=ALL_LIVE)
    tuning, written = searched(world, [FUSED, LAYOUT])
    assert {each.knob: each.reason for each in tuning.verdicts} == {
        "fused-optimizer": "it brings less than 3 %",
        "channels-last": "it brings less than 3 %",
    }
    assert (trials_of(world), written.settings) == ([{}], {})
    assert tuning.ended == "all that could save 3 % was tried"


def test_beside_another_incumbent_experiments_are_made_again(searched):
    """A larger layout pays only beside short numbers: the bottleneck has moved."""

    def speed(settings):
        layout = (1.2 if "precision" in settings else 1.0) if "channels-last" in settings else 1.0
        return layout * (1.5 if "precision" in settings else 1.0)

    world = World(speed, switches=ALL_LIVE)
    tuning, written = searched(world, [BF16, LAYOUT])
    assert written.settings == {"precision": "bf16-mixed", "channels-last": True}
    assert rulings(tuning)[0] == ("channels-last", Ruling.DROP)
    assert "experiments beside the plan so far" in searched.said
    assert tuning.gain.value == pytest.approx(0.8, abs=0.05)


def test_what_wins_and_is_not_allowed_is_reported_with_its_gain_and_the_option(searched):
    world = World({"precision": 4.0}, switches=ALL_LIVE)
    tuning, written = searched(world, [BF16], wish=EXACT)
    (verdict,) = tuning.verdicts
    assert (verdict.ruling, verdict.live, written.settings) == (Ruling.DROP, True, {})
    assert verdict.gain.value == pytest.approx(3.0, abs=0.1)
    assert verdict.reason == "changes rounding: add --allow rounding"
    assert tuning.ended == "what is left changes the numbers: add --allow rounding"


def test_a_wider_wish_uses_the_experiments_that_were_made(searched):
    world = World({"precision": 4.0}, switches=ALL_LIVE)
    searched(world, [BF16], wish=EXACT)
    before, world.switches = len(world.made), ()
    _, written = searched(world, [BF16])
    assert written.settings == {"precision": "bf16-mixed"}
    assert trials_of(world)[1:3] == [{}, {"precision": "bf16-mixed"}]
    assert before == 1


def test_the_class_on_this_job_decides_what_is_allowed(searched):
    """Items that draw random numbers: workers would draw others."""
    world = World({"num-workers": 2.0}, switches=ALL_LIVE, numerics={"num-workers": "statistical"})
    tuning, _ = searched(world, [WORKERS], wish=EXACT)
    assert [each.reason for each in tuning.verdicts] == ["changes statistical: add --allow statistical"]


@pytest.mark.parametrize("fault", ["dead", "wrong"])
def test_what_does_not_hold_together_is_tried_one_by_one(searched, fault):
    world = World({"fused-optimizer": 1.2, "precision": 1.3}, switches=ALL_LIVE, **{fault: ("precision",)})
    tuning, written = searched(world, [FUSED, BF16, LAYOUT])
    assert written.settings == {"fused-optimizer": "fused"}
    assert ("precision", Ruling.DROP) in rulings(tuning)
    assert "together they do not hold: one by one" in searched.said


def test_what_an_experiment_shows_and_fresh_processes_do_not_is_not_kept(searched):
    """Memory that is warm in one process, say."""
    world = World({}, switches=ALL_LIVE)
    world.in_process = lambda settings: 1.3 if "precision" in settings else 1.0
    tuning, written = searched(world, [BF16])
    assert (written.settings, rulings(tuning)) == ({}, [("precision", Ruling.DROP)])


def test_what_another_of_its_group_has_carried_is_left_out(searched):
    """Better in its experiment, worse in fresh processes: beside one that brings much it is kept at first."""
    world = World({"precision": 1.4, "fused-optimizer": 0.9}, switches=ALL_LIVE)
    in_process = {"precision": 1.4, "fused-optimizer": 1.1}
    world.in_process = lambda settings: math.prod(in_process.get(key, 1.0) for key in settings)
    tuning, written = searched(world, [FUSED, BF16])
    assert ("fused-optimizer", Ruling.KEEP) in rulings(tuning)
    assert written.settings == {"precision": "bf16-mixed"}
    assert tuning.verdicts[-1].reason == "the plan is as fast without it by now"


def test_of_changes_of_the_input_the_best_alone_is_tried_first(searched):
    """Both save the same wait: what the other brings beside it is another question, and another pass answers it."""
    world = World(
        lambda settings: 3.0 if "cache-dataset" in settings else 2.9 if "num-workers" in settings else 1.0,
        switches=ALL_LIVE,
    )
    tuning, written = searched(world, [CACHE, WORKERS])
    assert trials_of(world)[1] == written.settings == {"cache-dataset": "memory"}
    assert rulings(tuning) == [("cache-dataset", Ruling.KEEP), ("num-workers", Ruling.DROP)]


def test_what_could_save_less_than_free_input_leaves_is_not_tried(searched):
    """Replayed batches make this job no faster: neither would its own loader."""
    own, every = offer("loader", True, 0.6), offer("checkpoint-every", 8, 0.4)
    world = World({"checkpoint-every": 1.3}, free=0.01)
    tuning, _ = searched(world, [own, every])
    assert rulings(tuning) == [("checkpoint-every", Ruling.KEEP)]


def test_of_numbers_that_are_as_fast_the_smallest_is_tried(searched):
    speeds = {1: 1.5, 2: 2.0, 4: 2.02}
    world = World(lambda settings: speeds.get(settings.get("num-workers"), 1.0), switches=ALL_LIVE)
    _, written = searched(world, [offer("num-workers", count) for count in (4, 2, 1)])
    assert written.settings == {"num-workers": 2}


def test_a_larger_batch_that_wins_takes_its_rate_along(searched):
    world = World({"batch-size": 1.5}, switches=("batch-size",))
    _, written = searched(world, [LARGER])
    assert written.settings == {"batch-size": 8, "scale-lr": "sqrt"}


@pytest.mark.parametrize(
    ("size", "wish", "reason"),
    [
        (64, Wish("speed", frozenset(Numerics), keep_batch=True), "--keep-batch is given"),
        (512, None, "the guard sees too few batches of this size"),
    ],
)
def test_a_batch_that_wins_and_is_not_tried_says_why(searched, size, wish, reason):
    world = World({"batch-size": 1.5}, switches=("batch-size",))
    tuning, written = searched(world, [offer("batch-size", size)], wish=wish)
    assert written.settings == {}
    assert [each.reason for each in tuning.verdicts] == [f"not tried in fresh processes: {reason}"]
    assert tuning.verdicts[0].gain.value == pytest.approx(0.5, abs=0.02)


def test_what_cannot_be_switched_is_tried_in_fresh_processes_after_what_can(searched):
    world = World({"validate-every": 1.6, "precision": 1.2}, switches=ALL_LIVE)
    tuning, written = searched(world, [BF16, EVERY])
    assert written.settings == {"precision": "bf16-mixed", "validate-every": 8}
    assert [kind for kind, _ in world.made].count("ask") == 1
    assert not next(each for each in tuning.verdicts if each.knob == "validate-every").live


def test_whether_a_knob_can_act_is_asked_before_a_trial_is_paid_for(searched):
    world = World({}, cannot={"validate-every": "the script validates by itself"})
    tuning, _ = searched(world, [EVERY, offer("checkpoint-every", 8)])
    reasons = {each.knob: each.reason for each in tuning.verdicts}
    assert reasons["validate-every"] == "it cannot act: the script validates by itself"
    assert not any("validate-every" in settings for settings in trials_of(world))
    assert [kind for kind, _ in world.made].count("ask") == 1


def test_what_cannot_be_switched_and_is_not_allowed_is_named(searched):
    tuning, _ = searched(World({"validate-every": 2.0}), [EVERY], wish=EXACT)
    assert [(each.knob, each.gain, each.reason) for each in tuning.verdicts] == [
        (
            "validate-every",
            None,
            "not measured (it cannot be switched while the script runs); "
            "changes statistical: add --allow statistical",
        )
    ]


def test_what_an_experiment_refuses_is_tried_where_the_script_says_that_it_can_act(searched):
    world = World({"num-workers": 2.0}, refuses={"num-workers": "its IterableDataset cannot be read twice"})
    _, written = searched(world, [WORKERS])
    assert written.settings == {"num-workers": 2}


def test_what_had_no_turn_has_one_in_another_pass(searched):
    world = World({"precision": 1.3}, switches=ALL_LIVE, late=("precision",))
    _, written = searched(world, [LAYOUT, BF16])
    assert written.settings == {"precision": "bf16-mixed"}
    assert "more experiments" in searched.said
    assert trials_of(world)[:3] == [{}, {}, {"precision": "bf16-mixed"}]


@pytest.mark.parametrize(("seconds", "rulings_then"), [(600, [Ruling.KEEP]), (6, [Ruling.DROP])])
def test_time_that_is_left_goes_to_what_was_measured_too_loosely(searched, seconds, rulings_then):
    world = World({"fused-optimizer": 1.2}, switches=("fused-optimizer",), loose=("fused-optimizer",))
    tuning, _ = searched(world, [offer("fused-optimizer", "fused")], budget=SearchBudget(seconds=seconds))
    assert [each.ruling for each in tuning.verdicts] == rulings_then
    assert ("more experiments" in searched.said) == (rulings_then == [Ruling.KEEP])
    if rulings_then == [Ruling.DROP]:
        assert tuning.verdicts[0].reason == "the gain is within the noise"


def test_of_a_small_budget_another_pass_goes_before_a_guess(searched):
    """Experiments had no time for what wins, and fresh processes would have tried what promises most."""
    world = World({"precision": 1.3}, switches=("precision",), late=("precision",))
    _, written = searched(world, [COMPILE, BF16], budget=SearchBudget(seconds=45), seconds=10.0)
    assert written.settings == {"precision": "bf16-mixed"}
    assert trials_of(world)[:3] == [{}, {}, {"precision": "bf16-mixed"}]


def test_an_end_for_want_of_time_names_what_was_not_tried_and_what_it_takes(searched):
    """A round and the proof are six trials of 10 s; the budget is not spent."""
    world = World({"cache-dataset": 2.0})
    tuning, _ = searched(world, [CACHE, COMPILE], budget=SearchBudget(seconds=50), seconds=10.0)
    assert tuning.ended.startswith("50 s of the budget were left; compile=default needs about 75 s")
    assert tuning.verdicts[-1].reason == NO_TIME
    tuning, _ = searched(world, [CACHE, COMPILE], budget=SearchBudget(trials=3), seconds=10.0)
    assert tuning.ended.startswith("2 trials of the budget were left")


@pytest.mark.parametrize("goal", ["balanced", "memory"])
def test_other_goals_have_no_experiments(searched, goal):
    world = World({"grad-checkpointing": 0.9}, {"grad-checkpointing": 0.4}, switches=("grad-checkpointing",))
    wish = Wish(goal, frozenset(Numerics))
    _, written = searched(world, [offer("grad-checkpointing", True)], wish=wish)
    assert written.settings == {"grad-checkpointing": True}
    assert not world.tried


def test_a_search_that_goes_on_repeats_no_experiment(searched):
    world = World({"precision": 1.3}, switches=ALL_LIVE)
    searched(world, [BF16, LAYOUT], budget=SearchBudget(trials=1))
    asked = []
    world.in_process = lambda settings: asked.append(dict(settings)) or 1.0
    searched(world, [BF16, LAYOUT])
    assert asked and {"channels-last": True} not in asked
