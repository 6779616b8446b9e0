"""What is tried next: by prediction, within what the user allows, and nothing twice."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hotlap.facts.diagnosis import Cause, Diagnosis, Finding, Fix, Interval, Severity
from hotlap.facts.plan import Plan
from hotlap.facts.timeline import Dataset, Loader, Optimizer
from hotlap.ports.knob import Numerics
from hotlap.propose.search import Candidate, Wish, candidates, composed, opening, simpler
from hotlap.seams.catalogue import all_knobs
from hotlap.seams.plan import checked

KNOBS = all_knobs()
ALL = Wish(allowed=frozenset(Numerics))


def finding(*fixes, severity=Severity.CRITICAL, share=0.6):
    return Finding(Cause.ITEM_CPU_BOUND, severity, share, fixes=tuple(fixes))


def fix(knob, setting, gain):
    return Fix(knob, setting, gain, Interval(gain / 2, gain * 2))


def job(batch=32, length=1000, kind="SGD"):
    """As much of a timeline as proposals read."""
    dataset = Dataset("Rows", length)
    loader = Loader(dataset, batch, 0, None, persistent_workers=False, pin_memory=False, batches=10)
    return SimpleNamespace(loaders=(loader,), optimizers=(Optimizer(kind, 4, 100),))


@pytest.fixture
def offered():
    """The candidates of a diagnosis on a host where no knob offers anything by itself."""

    def offer(*findings, plan=None, wish=ALL, tried=(), timeline=None):
        timeline = timeline or job()
        before = dict.fromkeys(tried, 10.0) if not isinstance(tried, dict) else tried
        return candidates(Diagnosis(findings), None, timeline, SILENT, plan or Plan(), wish, before)

    return offer


def names(found):
    return [(each.knob, each.setting) for each in found]


class _Silent:
    def __init__(self, knob):
        self.id, self.values, self.numerics, self.clash = knob.id, knob.values, knob.numerics, knob.clash
        self.brings = knob.brings

    def ceiling(self, *_):
        return 0.0

    def settings(self, *_):
        return ()


SILENT = {key: _Silent(knob) for key, knob in KNOBS.items()}


def test_the_best_prediction_comes_first_with_settings_as_the_knob_reads_them(offered):
    found = offered(finding(fix("num-workers", "2", 0.4), fix("cache-dataset", "memory", 3.0)))
    assert names(found) == [("cache-dataset", "memory"), ("num-workers", 2)]


def test_what_was_tried_or_is_set_is_not_tried_again(offered):
    both = finding(fix("num-workers", "2", 0.4), fix("cache-dataset", "memory", 3.0))
    assert names(offered(both, tried=[("cache-dataset", "memory")])) == [("num-workers", 2)]
    assert names(offered(both, plan=Plan({"num-workers": 2}))) == [("cache-dataset", "memory")]


def test_numerics_that_are_not_allowed_are_left_out(offered):
    change = finding(fix("precision", "bf16-mixed", 0.5), fix("batch-size", "64", 0.5))
    assert names(offered(change, wish=Wish())) == []
    assert names(offered(change, wish=Wish(allowed=frozenset({Numerics.ROUNDING})))) == [
        ("precision", "bf16-mixed")
    ]


def test_the_batch_may_be_kept(offered):
    change = finding(fix("batch-size", "64", 0.5), fix("num-workers", "2", 0.1))
    assert names(offered(change, wish=Wish(allowed=frozenset(Numerics), keep_batch=True))) == [
        ("num-workers", 2)
    ]


def test_a_note_that_promises_next_to_nothing_is_not_worth_a_trial(offered):
    assert names(offered(finding(fix("num-workers", "2", 0.02), severity=Severity.NOTE))) == []


def test_a_value_that_the_knob_does_not_take_is_passed_over(offered):
    assert names(offered(finding(fix("compile", "sideways", 0.5)))) == []


def test_for_memory_only_knobs_that_save_memory_are_tried(offered):
    change = finding(fix("num-workers", "2", 0.9), fix("grad-checkpointing", "true", 0.1))
    found = offered(change, wish=Wish("memory", frozenset(Numerics)), timeline=job(15))
    assert names(found) == [("grad-checkpointing", True)]


def test_what_promises_much_more_beside_another_incumbent_is_tried_again(offered):
    change = finding(fix("num-workers", "2", 0.4))
    assert names(offered(change, tried={("num-workers", "2"): 0.35})) == []
    assert names(offered(change, tried={("num-workers", "2"): 0.1})) == [("num-workers", 2)]


def test_what_was_predicted_and_tried_is_not_tried_again_for_what_it_could_save_at_most(offered, monkeypatch):
    """The knob's own ceiling is far above the rule's prediction; where no rule predicts, it is what there is."""
    monkeypatch.setattr(SILENT["compile"], "ceiling", lambda *_: 0.8)
    monkeypatch.setattr(SILENT["compile"], "settings", lambda *_: ("default",))
    assert names(offered()) == [("compile", "default")]
    change = finding(fix("compile", "default", 0.1))
    assert names(offered(change, tried={("compile", "default"): 0.1})) == []


def test_what_could_hardly_bring_enough_is_not_tried(offered, monkeypatch):
    """By a rule's prediction, or by a part of the most that it could save."""
    assert names(offered(finding(fix("num-workers", "2", 0.015)))) == []
    monkeypatch.setattr(SILENT["compile"], "ceiling", lambda *_: 0.05)
    monkeypatch.setattr(SILENT["compile"], "settings", lambda *_: ("default",))
    assert names(offered()) == []


def test_a_batch_is_doubled_step_by_step_and_takes_the_rate_along(offered):
    """Twice as large first, whatever is predicted of four times: throughput decides how far it goes."""
    sizes = finding(fix("batch-size", "64", 0.4), fix("batch-size", "128", 0.9))
    (found,) = offered(sizes)
    assert (found.setting, found.beside, found.predicted) == (64, {"scale-lr": "linear"}, 0.4)
    (adam,) = offered(sizes, timeline=job(kind="AdamW"))
    assert adam.beside == {"scale-lr": "sqrt"}
    (next_one,) = offered(sizes, plan=Plan({"batch-size": 64, "scale-lr": "linear"}), timeline=job(64))
    assert next_one.setting == 128
    assert offered(sizes, timeline=job(length=50)) == []


def test_a_cache_brings_batched_fetch_along_where_that_is_on_offer(offered, monkeypatch):
    cache = finding(fix("cache-dataset", "memory", 2.0))
    (alone,) = offered(cache)
    assert alone.beside == {}
    monkeypatch.setattr(SILENT["batched-fetch"], "settings", lambda *_: (True,))
    (found,) = offered(cache)
    assert (found.setting, found.beside) == ("memory", {"batched-fetch": True})
    (again,) = offered(cache, plan=Plan({"batched-fetch": True}))
    assert again.beside == {}, "it stands already"
    (off,) = offered(finding(fix("cache-dataset", "off", 2.0)))
    assert off.beside == {}


def test_for_memory_the_batch_is_halved_and_the_effective_batch_kept(offered):
    wish = Wish("memory", frozenset(Numerics), keep_batch=True)
    (found,) = offered(wish=wish)
    assert (found.setting, found.beside) == (16, {"accumulate": 2})
    (again,) = offered(wish=wish, plan=Plan({"batch-size": 16, "accumulate": 2}), timeline=job(16))
    assert (again.setting, again.beside) == (8, {"accumulate": 4})
    assert offered(wish=wish, timeline=job(15)) == []


def test_what_makes_no_sense_beside_a_candidate_gives_way():
    workers = Plan({"num-workers": 2, "precision": "bf16-mixed"})
    own = Candidate("loader", True, 0.5, None, 0.5)
    plan = composed(workers, own, KNOBS)
    assert "precision" in plan.settings
    checked(plan.settings, KNOBS)
    batch = Candidate("batch-size", 64, 0.5, None, 0.5, {"scale-lr": "sqrt"})
    assert composed(workers, batch, KNOBS).settings == {
        **workers.settings,
        "scale-lr": "sqrt",
        "batch-size": 64,
    }


def likely(knob, setting, predicted, low=0.01):
    return Candidate(knob, setting, predicted, Interval(low, 1.0), 0.5)


def test_a_search_opens_with_one_remedy_for_each_cause_that_helps_at_the_worst():
    ranked = [
        likely("cache-dataset", "memory", 0.9),
        likely("num-workers", 2, 0.8),  # for the same items
        likely("bucketing", "tokens", 0.5),
        likely("bucketing", "rows", 0.45),
        likely("compile", "default", 0.4, low=0.0),
        Candidate("channels-last", True, None, None, 0.3),
        likely("fused-optimizer", "fused", 0.1),
    ]
    found = opening(ranked, Plan(), KNOBS)
    assert [each.knob for each in found] == ["cache-dataset", "bucketing", "fused-optimizer"]
    assert found[1].setting == "tokens"


def test_an_opening_holds_nothing_for_which_another_setting_would_have_to_go():
    """hotlap's own loader has no workers of torch's."""
    ranked = [likely("loader", True, 0.5), likely("prefetch-factor", 4, 0.4), likely("tf32", True, 0.1)]
    clashing = [each.knob for each in ranked if KNOBS["loader"].clash(True, each.knob, each.setting)]
    found = opening(ranked, Plan(), KNOBS)
    assert clashing and not {each.knob for each in found} & set(clashing)


def test_fewer_workers_are_simpler_more_or_others_are_not():
    two = Plan({"num-workers": 2})
    assert simpler(Candidate("num-workers", 1, None, None, 0.1), two, KNOBS)
    assert not simpler(Candidate("num-workers", 4, None, None, 0.1), two, KNOBS)
    assert not simpler(Candidate("num-workers", 1, None, None, 0.1), Plan(), KNOBS)
    assert not simpler(
        Candidate("precision", "32", None, None, 0.1), Plan({"precision": "bf16-mixed"}), KNOBS
    )


def test_verdicts_are_for_an_equal_wish_only():
    assert Wish().words == Wish().words
    assert len({Wish().words, Wish("memory").words, ALL.words, Wish(keep_batch=True).words}) == 4
