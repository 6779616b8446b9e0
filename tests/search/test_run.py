"""A search from its beginning to its end: what is kept, proved and taken back, beside made-up trials."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worlds import AGAIN, CACHE, COMPILE, DOUBLED, FUSED, WORKERS, World, by_batch, offer, rulings

from hotlap.errors import FactError
from hotlap.facts.diagnosis import Interval
from hotlap.facts.job import Job
from hotlap.facts.verdict import Gain, KnobVerdict, Ruling, Sameness
from hotlap.measure.ledger import Ledger, Ruled
from hotlap.ports.knob import Numerics
from hotlap.search.candidates import SearchBudget, Wish
from hotlap.search.guard_runs import GuardRuns
from hotlap.search.search import Search


def test_what_pays_is_kept_in_order_and_proved(searched):
    tuning, written = searched(World({"cache-dataset": 2.0, "compile": 1.3}), [COMPILE, CACHE, WORKERS])
    assert rulings(tuning) == [
        ("cache-dataset", Ruling.KEEP),
        ("num-workers", Ruling.DROP),
        ("compile", Ruling.KEEP),
        ("num-workers", Ruling.DROP),  # once more, beside a plan that is faster by a third
    ]
    assert written.settings == {"cache-dataset": "memory", "compile": "default"}
    assert tuning.gain.value == pytest.approx(1.6, abs=0.05)
    assert written.proof.guard == "same"
    assert tuning.alone["cache-dataset"].value == pytest.approx(1.0, abs=0.05)
    assert tuning.verdicts[1].reason == "not measurably faster"


def test_what_a_setting_brings_is_kept_with_it(searched):
    bringing = offer("cache-dataset", "memory", 0.9, {"batched-fetch": True})
    tuning, written = searched(World({"cache-dataset": 2.0, "batched-fetch": 1.1}), [bringing])
    assert rulings(tuning) == [("cache-dataset", Ruling.KEEP)]
    assert written.settings == {"batched-fetch": True, "cache-dataset": "memory"}
    assert tuning.gain.value == pytest.approx(1.2, abs=0.05)


def test_what_a_setting_brings_and_cannot_act_is_left_out_of_the_plan(searched):
    bringing = offer("cache-dataset", "memory", 0.9, {"batched-fetch": True})
    _, written = searched(World({"cache-dataset": 2.0}, idle=("batched-fetch",)), [bringing])
    assert written.settings == {"cache-dataset": "memory"}


def test_what_a_setting_brings_does_not_stand_for_it(searched):
    """The cache cannot act, and gathering whole batches helps all the same: that is another candidate's gain."""
    bringing = offer("cache-dataset", "memory", 0.9, {"batched-fetch": True})
    tuning, written = searched(World({"batched-fetch": 2.0}, idle=("cache-dataset",)), [bringing])
    assert (rulings(tuning), written.settings) == ([("cache-dataset", Ruling.DROP)], {})
    assert "cannot act: planted" in tuning.verdicts[0].reason


def test_a_search_goes_on_where_the_last_one_ended(searched):
    world = World({"cache-dataset": 2.0})
    searched(world, [CACHE, WORKERS], budget=SearchBudget(trials=3))
    before = len(world.made)
    tuning, written = searched(world, [CACHE, WORKERS])
    assert "1 verdicts are known" in "".join(searched.said)
    assert rulings(tuning) == [("cache-dataset", Ruling.KEEP), ("num-workers", Ruling.DROP)]
    assert written.settings == {"cache-dataset": "memory"}
    assert all(kind != "guard" for kind, _ in world.made[before:])  # what it said is in the ledger


@pytest.mark.parametrize("settings", [{"cache-dataset": "disk of another"}, {"no-such-knob": 1}])
def test_a_ledger_that_ends_with_settings_that_are_no_plan_is_refused(searched, tmp_path, settings):
    """A verdict on a knob that there is no more is left out."""
    ledger = Ledger(tmp_path, Job(("python", "train.py"), str(tmp_path), "train"))
    words = Wish("speed", frozenset(Numerics)).words
    ledger.rule(Ruled(words, KnobVerdict("cache-dataset", "memory", Ruling.KEEP), settings))
    with pytest.raises(FactError, match="no plan"):
        searched(World(), [CACHE])
    ledger.rule(Ruled(words, KnobVerdict("cache-dataset", "memory", Ruling.KEEP), {}))
    ledger.rule(Ruled(words, KnobVerdict("no-such-knob", 1, Ruling.KEEP), {"no-such-knob": 1}))
    tuning, _ = searched(World(), [WORKERS])
    assert "no-such-knob" not in [knob for knob, _ in rulings(tuning)]


def test_the_whole_plan_is_asked_once_in_the_end(searched):
    """Three seeds with all settings and without; on the way there each setting is looked at with one."""
    world = World(by_batch)
    tuning, written = searched(world, [DOUBLED, FUSED])
    assert [each.guard.sameness for each in tuning.verdicts] == [Sameness.SO_FAR, Sameness.SO_FAR]
    assert (tuning.guard.sameness, written.proof.guard) == (Sameness.SAME, "same")
    guarded = [settings for kind, settings in world.made if kind == "guard"]
    plans = ({}, {"scale-lr": "sqrt", "batch-size": 64}, dict(written.settings))
    assert [guarded.count(each) for each in plans] == [3, 1, 3]


def test_where_the_whole_plan_is_not_the_same_the_loosest_goes_step_by_step(searched):
    """The batch of 128 is one step too far; what was taken in after it stays."""
    tuning, written = searched(World(by_batch, astray=(128,)), [DOUBLED, AGAIN, FUSED])
    assert written.settings == {"scale-lr": "sqrt", "batch-size": 64, "fused-optimizer": "fused"}
    assert tuning.guard.sameness is Sameness.SAME
    assert (tuning.verdicts[-1].setting, tuning.verdicts[-1].ruling) == (128, Ruling.DROP)
    assert "of the whole plan the guard says different" in tuning.verdicts[-1].reason


def test_a_plan_that_was_never_run_has_no_figures_when_the_user_ends_the_answer_on_it(searched):
    """Stepped back from a batch of 128 to one of 64 beside the fused optimizer, of which there was no trial."""
    stepped_back = {"scale-lr": "sqrt", "batch-size": 64, "fused-optimizer": "fused"}

    class Impatient(World):
        def start(self, kind, settings):
            return super().start(kind, settings) or (kind, dict(settings)) == ("guard", stepped_back)

    tuning, written = searched(Impatient(by_batch, astray=(128,)), [DOUBLED, AGAIN, FUSED])
    assert tuning.ended.startswith("interrupted")
    assert (written.settings, written.proof, tuning.tuned) == (stepped_back, None, None)


def test_stepping_back_does_not_bring_back_what_was_dropped_before(searched, tmp_path):
    """An earlier search has taken back a batch of 128. What goes now is what came after it."""
    ledger, wish = (
        Ledger(tmp_path, Job(("python", "train.py"), str(tmp_path), "train")),
        Wish("speed", frozenset(Numerics)),
    )
    kept = {"scale-lr": "sqrt", "batch-size": 64}
    for size, ruling in ((64, Ruling.KEEP), (128, Ruling.KEEP), (128, Ruling.DROP)):
        verdict = KnobVerdict(
            "batch-size", size, ruling, Gain(0.5, Interval(0.4, 0.6)), beside={"scale-lr": "sqrt"}
        )
        ledger.rule(Ruled(wish.words, verdict, kept | {"batch-size": 64 if ruling is Ruling.DROP else size}))
    world = World(
        lambda settings: by_batch(settings) * (1.5 if "bucketing" in settings else 1.0), astray=("rows",)
    )
    tuning, written = searched(world, [offer("bucketing", "rows")])
    assert rulings(tuning)[-2:] == [("bucketing", Ruling.KEEP), ("bucketing", Ruling.DROP)]
    assert written.settings == kept


def test_a_setting_without_a_verdict_goes_too(searched, tmp_path):
    """A kill between the lines of a group leaves one in the ledger's plan that nobody ruled on."""
    world = World(by_batch, astray=(64,))
    ledger = Ledger(tmp_path, Job(("python", "train.py"), str(tmp_path), "train"))
    kept = KnobVerdict("fused-optimizer", "fused", Ruling.KEEP, Gain(0.2, Interval(0.1, 0.3)))
    wish = Wish("speed", frozenset(Numerics))
    ledger.rule(Ruled(wish.words, kept, {"batch-size": 64, "fused-optimizer": "fused"}))
    tuning, written = searched(world, [])
    assert written.settings == {"fused-optimizer": "fused"}
    assert rulings(tuning)[-1] == ("batch-size", Ruling.DROP)


@pytest.mark.parametrize("astray", [(64, 128), (128,)])
def test_without_time_for_another_answer_all_of_the_loosest_go(searched, monkeypatch, astray):
    """Each answer takes more than the budget has, once the search is over."""
    over = "does the whole plan train the same model?"
    monkeypatch.setattr(GuardRuns, "answer_s", lambda *_, **__: 1e9 if over in searched.said else 0.0)
    tuning, written = searched(World(by_batch, astray=astray), [DOUBLED, AGAIN, FUSED])
    assert written.settings == {"fused-optimizer": "fused"}
    assert [each.setting for each in tuning.verdicts if each.ruling is Ruling.DROP] == [128, 64]
    assert all("of the whole plan the guard says different" in each.reason for each in tuning.verdicts[-2:])


def test_what_was_only_not_decided_for_want_of_time_is_left_to_a_search_that_goes_on(searched, monkeypatch):
    """Other batches that lie off by turns: five seeds find that chance explains it, three do not."""
    world = World({"bucketing": 1.5, "fused-optimizer": 1.3}, shuffles=("bucketing",), quiet_seeds=1)
    offers = [offer("bucketing", "rows"), FUSED]
    with monkeypatch.context() as patched:
        patched.setattr(Search, "in_time", lambda self, trials, more_s: self.guard.run_s == 0.0 or trials > 4)
        _, written = searched(world, offers)
    assert written.settings == {"fused-optimizer": "fused"}
    tuning, written = searched(world, offers)
    assert written.settings == {"bucketing": "rows", "fused-optimizer": "fused"}
    assert (tuning.guard.sameness, tuning.guard.seeds) == (Sameness.SAME, 5)


def test_each_setting_alone_is_measured_with_what_the_proof_has_left(searched):
    """Six trials do not fit any more, which ends the search; one does, and the first setting ran alone in its duel."""
    world = World({"cache-dataset": 2.0, "compile": 1.3})
    least = offer("num-workers", 2, 0.1)
    tuning, _ = searched(world, [CACHE, COMPILE, least], budget=SearchBudget(trials=11))
    assert "num-workers=2 needs about 6 trials" in tuning.ended
    assert set(tuning.alone) == {"cache-dataset", "compile"}


def test_for_another_wish_everything_is_tried_anew(searched):
    world = World({"cache-dataset": 2.0})
    searched(world, [CACHE])
    tuning, _ = searched(world, [CACHE], wish=Wish("speed"))
    assert rulings(tuning) == [("cache-dataset", Ruling.KEEP)]
    assert len(searched.said) and "going on" not in "".join(searched.said)


@pytest.mark.parametrize("at", [8, 9])
def test_an_interrupt_keeps_the_best_so_far(searched, at):
    """In a trial (after baseline, duel and three guard runs: the eighth process), and between."""
    tuning, written = searched(
        World({"cache-dataset": 2.0, "compile": 1.5}, interrupt_at=at), [CACHE, COMPILE]
    )
    assert tuning.ended.startswith("interrupted")
    assert written.settings == {"cache-dataset": "memory"}
    assert written.proof is None


def test_an_interrupt_in_the_guard_accepts_nothing(searched):
    tuning, written = searched(World({"cache-dataset": 2.0}, interrupt_at=5), [CACHE])
    assert tuning.ended.startswith("interrupted")
    assert (written.settings, tuning.verdicts) == ({}, ())


def test_an_interrupt_of_the_baseline_ends_the_search(searched):
    with pytest.raises(KeyboardInterrupt):
        searched(World(interrupt_at=1), [CACHE])


def test_where_the_last_rounds_scatter_the_runs_before_them_decide(searched):
    """In one run of the proof the machine is a third as fast: its rounds tell nothing, all runs do."""
    world = World()
    disturbed = []

    def speed(settings):
        if settings and not disturbed and "the winner once more, beside the baseline" in searched.said:
            disturbed.append(True)
            return 0.5
        return 1.6 if settings else 1.0

    world.speeds = speed
    others = [offer("num-workers", count, 0.2 - count / 100) for count in (2, 3, 4, 5)]
    tuning, written = searched(world, [CACHE, *others])
    assert disturbed
    assert written.settings == {"cache-dataset": "memory"}
    assert tuning.gain.interval.low > 0.0
    assert tuning.gain.trials > 8  # of four rounds


@pytest.mark.parametrize(("speed", "scatter", "rounds"), [(3.0, 0.0, 3), (1.3, 0.15, 6)])
def test_the_proof_goes_on_until_it_is_known_closely_or_six_rounds_are_over(searched, speed, scatter, rounds):
    world = World()
    luck = (0.3, -1.0, 0.8, 1.0, -0.6, -0.2, 0.9)
    world.speeds = lambda settings: (
        (speed if settings else 1.0) * (1 + scatter * luck[len(world.made) % len(luck)])
    )
    tuning, _ = searched(world, [CACHE])
    assert tuning.gain.trials == 2 * rounds


def test_what_a_later_setting_has_made_needless_is_left_out(searched):
    world = World(
        lambda settings: 3.0 if "cache-dataset" in settings else 1.5 if "num-workers" in settings else 1.0
    )
    first = replace(WORKERS, bound=0.95)
    tuning, written = searched(world, [first, CACHE])
    assert written.settings == {"cache-dataset": "memory"}
    assert tuning.verdicts[-1].reason == "the plan is as fast without it by now"


def test_what_goes_with_a_setting_is_not_measured_alone_but_with_it(searched):
    batch = offer("batch-size", 64, 0.95, {"scale-lr": "sqrt"})
    world = World({"batch-size": 1.5, "cache-dataset": 2.0})
    tuning, written = searched(world, [CACHE, batch])
    assert written.settings == {"cache-dataset": "memory", "scale-lr": "sqrt", "batch-size": 64}
    assert set(tuning.alone) == {"cache-dataset", "batch-size"}
    assert ("trial", {"scale-lr": "sqrt"}) not in world.made


def test_what_goes_with_a_setting_is_left_out_with_it(searched):
    world = World(
        lambda settings: 3.0 if "cache-dataset" in settings else 1.5 if "batch-size" in settings else 1.0
    )
    _, written = searched(world, [offer("batch-size", 64, 0.95, {"scale-lr": "sqrt"}), CACHE])
    assert written.settings == {"cache-dataset": "memory"}
