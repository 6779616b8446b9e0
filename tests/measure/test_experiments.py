"""Trials of real jobs whose window is followed by experiments, and the question which knobs could act."""

from __future__ import annotations

import pytest

from hotlap.experiments.leads import Lead
from hotlap.facts.experiment import Experiments, ExperimentState
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Status
from hotlap.host.machine import inspect_host
from hotlap.plan.catalogue import all_knobs
from hotlap.plan.record import answer
from hotlap.propose.presets import asking_plan

INPUT = ("cache-dataset", "num-workers")


def lead(plan, *, seconds=20.0, knobs=INPUT):
    """Experiments on some knobs, as a search makes them."""
    return Lead(inspect_host(), seconds, lambda _: None, plan, lambda change: change.knob in knobs)


@pytest.mark.alone
def test_a_trial_is_followed_by_experiments_that_are_stored_beside_it(bench):
    """Items wait for 5 ms each: kept in memory they are many times as fast, whatever else the machine does."""
    mine = bench("slow_items.py")
    trial, seen = mine.trial(1, Plan(), ("ops",), lead(Plan()))
    assert trial.status is Status.DONE, trial.reason
    assert seen[0].steady_steps and seen[0].ops is not None
    found = mine.experiments(1)
    won = {each.knob: each for each in found.faster}
    assert won["cache-dataset"].gain > 1.0
    assert won["cache-dataset"].numerics in ("bitwise", "audited")
    assert {each.knob for each in found.measured} <= set(INPUT)
    counted_s = trial.figures.steps * trial.figures.step_ms / 1e3
    assert counted_s < found.seconds / 2, "steps of the experiments do not count"
    assert mine.experiments(2) is None


@pytest.mark.alone
def test_beside_a_plan_what_stands_is_not_brought_twice(bench):
    plan = Plan({"cache-dataset": "memory", "batched-fetch": True})
    mine = bench("slow_items.py")
    trial, _ = mine.trial(1, plan, (), lead(plan, knobs=("num-workers",), seconds=8.0))
    assert trial.status is Status.DONE, trial.reason
    assert set(trial.stood) == set(plan.settings)
    found = mine.experiments(1)
    assert all(not each.beside for each in found.tried)
    assert not any(each.knob in plan.settings for each in found.tried)


class Impatient:
    """Ends the job in its experiments."""

    begun = False

    def __init__(self, folder):
        self._folder = folder

    def tick(self):
        self.begun = any(self._folder.glob("*.experiments.ready"))
        return not self.begun

    def results(self):
        return Experiments((), 0.5, "planted") if self.begun else None


def test_a_job_that_has_to_be_ended_in_its_experiments_was_measured(bench):
    trial, seen = bench("slow_items.py").trial(1, Plan(), (), lambda folder, *_: Impatient(folder))
    assert (trial.status, trial.reason) == (Status.DONE, "")
    assert trial.figures is not None and seen


def test_one_short_run_says_which_knobs_can_act(bench):
    knobs = all_knobs()
    records, interrupted = bench("slow_items.py").ask(asking_plan(knobs))
    assert not interrupted
    told = {
        key: answer(knobs[key], [each for each in records[0].fitted if each.knob == key]) for key in knobs
    }
    assert told["num-workers"]["acts"]
    assert not told["validate-every"]["acts"] and told["validate-every"]["reason"]
    assert records[0].steps <= 3


def test_states_of_experiments_are_read_again(bench):
    mine = bench("slow_items.py", steps=10)
    mine.trial(1, Plan(), (), lead(Plan(), seconds=0.01))
    found = mine.experiments(1)
    assert found is not None
    assert {each.state for each in found.tried} <= {ExperimentState.NOT_TRIED, ExperimentState.REFUSED}
