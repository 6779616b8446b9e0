"""What fresh processes try: the largest bound first, for the goal, and nothing twice; and what stands side by side."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hotlap.facts.plan import Plan
from hotlap.facts.timeline import DatasetFacts, LoaderFacts, OptimizerFacts
from hotlap.plan.catalogue import all_knobs, checked
from hotlap.ports.knob import Numerics
from hotlap.search.candidates import (
    Candidate,
    Wish,
    candidates,
    composed,
    side_by_side,
    simpler,
    with_its_rate,
)

KNOBS = all_knobs()
ALL = Wish(allowed=frozenset(Numerics))
WORKERS, CACHE = Candidate("num-workers", 2, 0.3), Candidate("cache-dataset", "memory", 0.6)


def job(batch=32, length=1000, kind="SGD"):
    """As much of a timeline as proposals read."""
    dataset = DatasetFacts("Rows", length)
    loader = LoaderFacts(dataset, batch, 0, None, persistent_workers=False, pin_memory=False, batches=10)
    return SimpleNamespace(loaders=(loader,), optimizers=(OptimizerFacts(kind, 4, 100),))


@pytest.fixture
def offered():
    """What may be tried of what is on offer."""

    def offer(*given, plan=None, wish=ALL, tried=(), timeline=None):
        before = dict.fromkeys(tried, 1.0) if not isinstance(tried, dict) else tried
        return candidates(given, timeline or job(), KNOBS, plan or Plan(), wish, before)

    return offer


def names(found):
    return [(each.knob, each.setting) for each in found]


def test_the_largest_bound_comes_first(offered):
    assert names(offered(WORKERS, CACHE)) == [("cache-dataset", "memory"), ("num-workers", 2)]


def test_what_was_tried_or_is_set_is_not_tried_again(offered):
    assert names(offered(WORKERS, CACHE, tried=[CACHE.key])) == [("num-workers", 2)]
    assert names(offered(WORKERS, CACHE, plan=Plan({"num-workers": 2}))) == [("cache-dataset", "memory")]


def test_what_could_save_much_more_beside_another_incumbent_is_tried_again(offered):
    assert names(offered(WORKERS, tried={WORKERS.key: 0.25})) == []
    assert names(offered(WORKERS, tried={WORKERS.key: 0.1})) == [("num-workers", 2)]


def test_the_batch_may_be_kept(offered):
    wish = Wish(allowed=frozenset(Numerics), keep_batch=True)
    assert names(offered(Candidate("batch-size", 64, 0.5), WORKERS, wish=wish)) == [("num-workers", 2)]


def test_for_memory_only_knobs_that_save_memory_are_tried(offered):
    found = offered(
        WORKERS,
        Candidate("grad-checkpointing", True, 0.1),
        wish=Wish("memory", frozenset(Numerics)),
        timeline=job(15),
    )
    assert names(found) == [("grad-checkpointing", True)]


def test_a_batch_is_doubled_step_by_step_and_takes_the_rate_along(offered):
    """Twice as large first: where no experiment could tell, throughput decides how far it goes."""
    sizes = [Candidate("batch-size", size, 0.4) for size in (64, 128)]
    (found,) = offered(*sizes)
    assert (found.setting, found.beside) == (64, {"scale-lr": "linear"})
    (adam,) = offered(*sizes, timeline=job(kind="AdamW"))
    assert adam.beside == {"scale-lr": "sqrt"}
    (next_one,) = offered(*sizes, plan=Plan({"batch-size": 64, "scale-lr": "linear"}), timeline=job(64))
    assert next_one.setting == 128
    assert offered(*sizes, timeline=job(length=50)) == []


def test_a_batch_that_an_experiment_measured_takes_the_rate_along():
    assert with_its_rate(Candidate("batch-size", 128, 0.4), job()).beside == {"scale-lr": "linear"}
    assert with_its_rate(WORKERS, job()) is WORKERS


def test_what_a_setting_brings_is_not_brought_twice(offered):
    cache = Candidate("cache-dataset", "memory", 0.5, {"batched-fetch": True})
    assert [each.beside for each in offered(cache)] == [{"batched-fetch": True}]
    assert [each.beside for each in offered(cache, plan=Plan({"batched-fetch": True}))] == [{}]


def test_for_memory_the_batch_is_halved_and_the_effective_batch_kept(offered):
    wish = Wish("memory", frozenset(Numerics), keep_batch=True)
    (found,) = offered(wish=wish)
    assert (found.setting, found.beside) == (16, {"accumulate": 2})
    (again,) = offered(wish=wish, plan=Plan({"batch-size": 16, "accumulate": 2}), timeline=job(16))
    assert (again.setting, again.beside) == (8, {"accumulate": 4})
    assert offered(wish=wish, timeline=job(15)) == []


def test_what_makes_no_sense_beside_a_candidate_gives_way():
    workers = Plan({"num-workers": 2, "precision": "bf16-mixed"})
    own = Candidate("loader", True, 0.5)
    plan = composed(workers, own, KNOBS)
    assert "precision" in plan.settings
    checked(plan.settings, KNOBS)
    batch = Candidate("batch-size", 64, 0.5, {"scale-lr": "sqrt"})
    assert composed(workers, batch, KNOBS).settings == {
        **workers.settings,
        "scale-lr": "sqrt",
        "batch-size": 64,
    }


def test_one_setting_of_each_knob_stands_and_none_for_which_another_would_have_to_go():
    """hotlap's own loader has no workers of torch's."""
    ranked = [
        Candidate("loader", True, 0.5),
        Candidate("prefetch-factor", 4, 0.4),
        Candidate("tf32", True, 0.1),
        Candidate("tf32", False, 0.1),
    ]
    clashing = [each.knob for each in ranked if KNOBS["loader"].clash(True, each.knob, each.setting)]
    found = side_by_side(ranked, Plan(), KNOBS)
    assert clashing and not {each.knob for each in found} & set(clashing)
    assert names(found)[-1] == ("tf32", True)


def test_another_value_may_take_the_place_of_its_own_knobs():
    two = Plan({"num-workers": 2, "precision": "bf16-mixed"})
    assert names(side_by_side([Candidate("num-workers", 4, 0.3)], two, KNOBS)) == [("num-workers", 4)]


def test_fewer_workers_are_simpler_more_or_others_are_not():
    two = Plan({"num-workers": 2})
    assert simpler(Candidate("num-workers", 1, 0.1), two, KNOBS)
    assert not simpler(Candidate("num-workers", 4, 0.1), two, KNOBS)
    assert not simpler(Candidate("num-workers", 1, 0.1), Plan(), KNOBS)
    assert not simpler(Candidate("precision", "32", 0.1), Plan({"precision": "bf16-mixed"}), KNOBS)


def test_verdicts_are_for_an_equal_wish_only():
    assert Wish().words == Wish().words
    assert len({Wish().words, Wish("memory").words, ALL.words, Wish(keep_batch=True).words}) == 4
