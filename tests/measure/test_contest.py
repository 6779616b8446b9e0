"""When a comparison ends: once every interval is narrow beside the difference, or its budget is spent."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Figures, Rate, Status, Trial
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
    return contest(SimpleNamespace(counts=""), VARIANTS, rounds, lambda *_: None, spent)  # type: ignore[arg-type]


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


def told(name, counts, **rates):
    """A finished trial that has seen these counts."""
    known = {key: Rate(per_s, 0.1) for key, per_s in rates.items()}
    figures = Figures(rates[counts], counts, 8.0, 2.0, 8.0, None, 0.75, 0.0, 1.0, 0.0, 60, rates=known)
    return name, Trial(1, Plan(), Status.DONE, 3.0, figures)


def among(jobs, *trials) -> Contest:
    variants = [Variant(name, job, Plan()) for name, job in jobs.items()]
    return Contest(variants, {name: [each for at, each in trials if at == name] for name in jobs})


def test_all_variants_are_told_in_one_count():
    tokens = [told("none", "tokens", tokens=rate, samples=5.0) for rate in (900.0, 910.0)]
    blind = [told("plan", "samples", samples=rate) for rate in (10.0, 10.1)]
    found = among({"none": JOB, "plan": JOB}, *tokens, *blind)
    assert found.rates("none") == [5.0, 5.0]
    assert found.ratio("plan").value == pytest.approx(2.0, rel=0.02)
    assert {each.figures.counts for trials in found.told.values() for each in trials} == {"samples"}


def test_tokens_of_two_scripts_are_counted_only_where_they_are_alike():
    """The same job under a plan that happened to draw short clips is counted by tokens; another script is not."""
    long = [told("none", "tokens", tokens=rate, samples=2.0) for rate in (900.0, 910.0)]
    short = [told("new", "tokens", tokens=rate, samples=8.0) for rate in (900.0, 910.0)]
    assert among({"none": JOB, "new": JOB}, *long, *short).ratio("new").value == pytest.approx(1.0)
    other = Job(("python", "new.py"), "/", "new")
    assert among({"none": JOB, "new": other}, *long, *short).ratio("new").value == pytest.approx(4.0)


def paired(**rates) -> Contest:
    variants = [Variant(name, JOB, Plan()) for name in rates]
    return Contest(
        variants, {name: [done(rate) for rate in each] for name, each in rates.items()}, sliced=True
    )


def test_rounds_in_slices_are_compared_within_the_round():
    """The machine halves its speed from round to round: what is left of the scatter is a thousandth."""
    found = paired(none=[100, 50, 201, 80], plan=[110, 55.1, 221, 88.1])
    ratio = found.ratio("plan")
    assert ratio is not None
    assert ratio.low < 1.1 < ratio.high
    assert found.narrow
    found.sliced = False
    assert not found.narrow, "as runs one after the other they tell nothing"


def test_a_variant_that_died_in_a_later_round_keeps_its_pairs_and_leaves_the_others_theirs():
    found = paired(none=[100, 50, 201, 80], short=[90, 45.1], plan=[110, 55.1, 221, 88.1])
    short, plan = found.ratio("short"), found.ratio("plan")
    assert short is not None and short.value == pytest.approx(0.9, rel=0.01)
    assert plan is not None and plan.value == pytest.approx(1.1, rel=0.01)
    assert plan.decided
