"""When a comparison ends: once every interval is narrow beside the difference, or its budget is spent."""

from __future__ import annotations

import pytest

from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Figures, Status, Trial
from hotlap.measure.contest import LEAST_ROUNDS, Contest, Variant, contest

JOB = Job(("python", "train.py"), "/", "train")
VARIANTS = (Variant("none", JOB, Plan()), Variant("plan", JOB, Plan({"loader": "hotlap"})))


def done(rate, number=1, foreign=0.0):
    figures = Figures(rate, "samples", 8.0, 2.0, 8.0, None, 0.75, 0.0, 1.0, foreign, 60)
    return Trial(number, Plan(), Status.DONE, 3.0, figures)


@pytest.fixture
def bench(monkeypatch):
    """Stands for the runs: rates by variant in turn; None is a run that dies."""

    def made(**rates):
        left = {name: iter(values) for name, values in rates.items()}
        order: list[str] = []

        def undisturbed(_, number, variant):
            order.append(variant.name)
            rate = next(left[variant.name])
            return done(rate, number) if rate else Trial(number, Plan(), Status.DEAD, 1.0, None, "boom")

        monkeypatch.setattr("hotlap.measure.contest._undisturbed", undisturbed)
        monkeypatch.setattr("hotlap.measure.contest.replace", lambda bench, **_: bench)
        return order

    return made


def held(rounds=12, spent=lambda: False) -> Contest:
    return contest(None, VARIANTS, rounds, lambda *_: None, spent)  # type: ignore[arg-type]


def test_variants_run_in_turn_and_back_and_end_when_the_interval_is_narrow(bench):
    order = bench(none=[100, 101, 100, 99, 100], plan=[150, 151, 150, 149, 150])
    found = held()
    assert order[:4] == ["none", "plan", "plan", "none"]
    assert len(order) == 2 * LEAST_ROUNDS
    ratio = found.ratio("plan")
    assert ratio is not None and ratio.low < 1.5 < ratio.high


def test_a_large_difference_needs_no_narrow_interval(bench):
    """Six times as fast, give or take a tenth: more runs would tell nobody more."""
    order = bench(none=[100, 97, 103, 100] * 3, plan=[600, 580, 620, 600] * 3)
    held()
    assert len(order) == 2 * LEAST_ROUNDS


def test_a_small_difference_in_loud_runs_takes_all_rounds(bench):
    order = bench(none=[100, 80, 120, 100] * 3, plan=[102, 85, 119, 100] * 3)
    held(rounds=6)
    assert len(order) == 12


def test_a_spent_budget_ends_it_after_two_rounds(bench):
    order = bench(none=[100, 80, 120], plan=[102, 85, 119])
    found = held(spent=lambda: True)
    assert len(order) == 4
    assert found.ratio("plan") is not None


def test_a_variant_that_dies_is_left_out_and_told(bench):
    order = bench(none=[100.0] * 6, plan=[None])
    found = held()
    assert order.count("plan") == 1
    assert found.ratio("plan") is None
    assert found.trials["plan"][0].reason == "boom"
