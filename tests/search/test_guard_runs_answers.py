"""What answers of the guard take, and how many seeds they need, beside made-up runs."""

from __future__ import annotations

import pytest
from worlds import World, guard_of, offer, rulings

from hotlap.facts.plan import Plan
from hotlap.facts.trial import Status, Trial
from hotlap.facts.verdict import Ruling, Sameness
from hotlap.search.candidates import SearchBudget


@pytest.mark.parametrize(("seconds", "seeds", "ruling"), [(600, 8, Ruling.KEEP), (30, 3, Ruling.DROP)])
def test_the_guard_asks_more_seeds_until_they_decide_or_the_budget_ends(searched, seconds, seeds, ruling):
    """Other batches make as much of a difference as other seeds: of that three say nothing."""
    world = World({"bucketing": 1.5}, shuffles=("bucketing",))
    budget = SearchBudget(seconds=seconds)
    tuning, _ = searched(world, [offer("bucketing", "rows")], budget=budget, seconds=10.0)
    assert rulings(tuning) == [("bucketing", ruling)]
    assert [kind for kind, _ in world.made].count("guard") == 2 * seeds
    assert tuning.verdicts[0].guard.seeds == seeds


def test_what_an_answer_of_the_guard_takes_is_known_by_the_runs_that_are_missing(tmp_path):
    """Eight seeds were asked for one plan; for another one the script's own runs are there."""
    world = World(shuffles=("bucketing",))
    guard = guard_of(world, tmp_path)
    bucketed, cached, fused = (
        {"bucketing": "rows"},
        {"cache-dataset": "memory"},
        {"fused-optimizer": "fused"},
    )
    guard.run_s = 10.0
    assert [guard.answer_s(Plan(each), None) for each in (cached, fused, bucketed)] == [30.0, 60.0, 160.0]
    guard.ask(Plan(bucketed), None)
    assert len(world.made) == 16
    guard.run_s = 10.0
    assert [guard.answer_s(Plan(each), None) for each in (cached, fused, bucketed | fused)] == [
        20.0,
        30.0,
        80.0,
    ]


def test_one_seed_is_enough_to_go_on_from_a_plan_unless_it_raises_doubts(tmp_path):
    world = World(wrong=("precision",))
    guard = guard_of(world, tmp_path)
    found = guard.look(Plan({"fused-optimizer": "fused"}), None)
    assert (found.sameness, found.seeds, len(world.made)) == (Sameness.SO_FAR, 1, 2)
    found = guard.look(Plan({"precision": "bf16-mixed"}), None)
    assert (found.sameness, found.seeds) == (Sameness.DIFFERENT, 3)


def test_more_seeds_are_not_asked_where_none_can_tell(tmp_path):
    """One batch holds all that is compared."""
    world = World(bulky=("batch-size",))
    found = guard_of(world, tmp_path).look(Plan({"batch-size": 4096}), None)
    assert (found.sameness, found.seeds, len(world.made)) == (Sameness.NOT_DECIDED, 3, 6)


def test_what_a_trial_found_of_a_setting_counts_for_what_its_answer_takes(tmp_path):
    """More workers are bit-equal, but on a dataset that draws random numbers."""
    guard, plan = guard_of(World(), tmp_path), Plan({"num-workers": 2})
    guard.run_s = 10.0
    drew = Trial(1, plan, Status.DONE, 1.0, numerics={"num-workers": "statistical"})
    assert [guard.answer_s(plan, trial) for trial in (None, drew)] == [30.0, 160.0]


def test_bits_are_the_whole_answer_at_once(tmp_path):
    world = World()
    found = guard_of(world, tmp_path).look(Plan({"cache-dataset": "memory"}), None)
    assert (found.sameness, len(world.made)) == (Sameness.SAME, 3)


def test_runs_of_a_larger_batch_end_when_they_have_seen_as_many_samples(tmp_path):
    world = World()
    guard_of(world, tmp_path).ask(Plan({"batch-size": 64}), None)
    assert world.samples == [0, 0, 0, 192, 192, 192]
