"""Candidates in fresh processes, beside made-up trials: what is kept, dropped and left out, within the budget."""

from __future__ import annotations

import random
from itertools import cycle

import pytest
from worlds import BF16, BUCKETS, CACHE, COMPILE, KNOBS, WORKERS, FakeBench, World, offer, rulings, trials_of

from hotlap.facts.job import Job
from hotlap.facts.verdict import Ruling, Sameness
from hotlap.measure.ledger import Ledger
from hotlap.measure.runner import AS_LONG
from hotlap.ports.knob import Numerics
from hotlap.search.candidates import NO_TIME, Said, SearchBudget, Wish
from hotlap.search.guard_runs import GuardRuns
from hotlap.search.search import Search


def test_a_batch_of_which_the_guard_could_tell_nothing_is_not_tried(searched):
    """It holds more than half of what 24 steps of 32 samples see."""
    world = World({"batch-size": 1.5})
    tuning, _ = searched(world, [offer("batch-size", 384), offer("batch-size", 385, 0.9)])
    assert [(each.setting, each.ruling) for each in tuning.verdicts] == [
        (384, Ruling.KEEP),
        (385, Ruling.DROP),
    ]
    assert not any(385 in settings.values() for settings in trials_of(world))


@pytest.mark.parametrize(("seconds", "tried"), [(5, 1), (50, 1), (600, 2)])
def test_a_candidate_is_begun_only_where_all_that_follows_is_within_the_budget(searched, seconds, tried):
    """A round and the proof are six trials, of 10 s here. The first candidate is tried in any case."""
    world = World({"cache-dataset": 2.0, "compile": 1.3})
    tuning, _ = searched(world, [CACHE, COMPILE], budget=SearchBudget(seconds=seconds), seconds=10.0)
    assert [each.reason != NO_TIME for each in tuning.verdicts] == [number < tried for number in range(2)]
    assert (tuning.ended == "all that could save 3 % was tried") is (tried == 2)


@pytest.mark.parametrize(("answer_s", "rounds"), [(1.0, 4), (20.0, 1)])
def test_another_round_leaves_room_for_the_guard(searched, monkeypatch, answer_s, rounds):
    monkeypatch.setattr(GuardRuns, "answer_s", lambda *_, **__: answer_s)
    noise = random.Random(1)
    world = World(lambda _: noise.uniform(0.8, 1.2))
    searched(world, [COMPILE], budget=SearchBudget(seconds=20))
    assert world.made.count(("trial", {"compile": "default"})) == rounds


def test_a_winner_that_does_not_win_again_is_no_winner(searched):
    """Fast in its duel, then not: the machine had helped it."""
    world = World()
    world.speeds = lambda settings: 1.5 if settings and len(world.made) < 8 else 1.0
    tuning, written = searched(world, [CACHE])
    assert rulings(tuning) == [("cache-dataset", Ruling.KEEP)]
    assert written.settings == {}
    assert "was not measurably faster than the original script" in tuning.ended
    assert tuning.gain is None


def test_what_the_machine_does_to_a_whole_round_hides_no_gain(searched):
    """It is half as fast in one round as in another; within each of them the setting is a tenth faster."""
    world = World()
    paces = (1.0, 0.6, 1.2, 0.8, 1.1)

    def speed(settings):
        experiments = max(0, len(world.tried) - 1)  # after which a round begins as it would have without
        trials = [kind for kind, _ in world.made].count("trial") - experiments
        return paces[trials // 2 % len(paces)] * (1.1 if settings else 1.0)

    world.speeds = speed
    tuning, written = searched(world, [CACHE])
    assert written.settings == {"cache-dataset": "memory"}
    assert tuning.verdicts[0].gain.value == pytest.approx(0.1, abs=0.02)
    assert tuning.gain.value == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("at_first", [1.0, 0.95])
def test_what_brought_nothing_is_tried_again_beside_another_incumbent(searched, at_first):
    """A larger batch costs what it saves, or a little more, until the numbers are shorter."""

    def speed(settings):
        if "precision" in settings:
            return 1.3 * (1.2 if "batch-size" in settings else 1.0)
        return at_first if "batch-size" in settings else 1.0

    world = World(speed)
    batch, shorter = offer("batch-size", 64, 0.9), offer("precision", "bf16-mixed", 0.5)
    tuning, written = searched(world, [batch, shorter])
    assert rulings(tuning) == [
        ("batch-size", Ruling.DROP),
        ("precision", Ruling.KEEP),
        ("batch-size", Ruling.KEEP),
    ]
    assert written.settings == {"precision": "bf16-mixed", "batch-size": 64}


@pytest.mark.parametrize(("before", "brings"), [(0.85, 1.3), (1.0, 1.05)])
def test_what_was_slower_or_meets_about_the_same_incumbent_is_not_tried_again(searched, before, brings):
    world = World({"batch-size": before, "precision": brings})
    tuning, _ = searched(world, [offer("batch-size", 64, 0.9), offer("precision", "bf16-mixed", 0.5)])
    assert rulings(tuning) == [("batch-size", Ruling.DROP), ("precision", Ruling.KEEP)]


def test_who_is_behind_after_two_rounds_has_lost(searched):
    world = World({})
    restless = cycle((0.95, 1.05, 0.92, 1.08))
    world.speeds = lambda settings: next(restless) * (0.93 if "compile" in settings else 1.0)
    tuning, _ = searched(world, [COMPILE])
    assert tuning.verdicts[0].gain.trials == 4
    assert tuning.verdicts[0].reason == "not measurably faster"


def test_a_second_try_survives_the_end_of_a_search(searched):
    """The budget ends when the numbers have become shorter; the search that goes on asks the batch again."""
    alone = {"precision": 1.3, "batch-size": 1.0}
    world = World(
        lambda settings: 1.56 if len(settings) == 2 else alone[next(iter(settings))] if settings else 1.0
    )
    offers = [offer("batch-size", 64, 0.9), offer("precision", "bf16-mixed", 0.5)]
    first, _ = searched(world, offers, budget=SearchBudget(trials=15))
    assert rulings(first) == [("batch-size", Ruling.DROP), ("precision", Ruling.KEEP)]
    tuning, written = searched(world, offers)
    assert rulings(tuning)[-1] == ("batch-size", Ruling.KEEP)
    assert written.settings == {"precision": "bf16-mixed", "batch-size": 64}


def test_a_faster_setting_that_trains_another_model_is_dropped(searched):
    tuning, written = searched(
        World({"precision": 3.0}, wrong=("precision",)), [offer("precision", "16-mixed")]
    )
    assert written.settings == {}
    assert tuning.verdicts[0].guard.sameness is Sameness.DIFFERENT
    assert "the guard says different" in tuning.verdicts[0].reason


def test_dead_and_idle_settings_cost_one_trial(searched):
    world = World({}, dead=("compile",), idle=("num-workers",))
    tuning, _ = searched(world, [COMPILE, WORKERS])
    assert [each.reason for each in tuning.verdicts] == [
        "it cannot act: planted",
        "the job died: planted",
    ]
    assert len(trials_of(world)) == 3


def test_a_batch_and_its_rate_are_tried_together(searched):
    batch = offer("batch-size", 64, 0.5, {"scale-lr": "sqrt"})
    tuning, written = searched(World({"batch-size": 1.4}), [batch])
    assert written.settings == {"scale-lr": "sqrt", "batch-size": 64}
    assert tuning.verdicts[0].beside == {"scale-lr": "sqrt"}


@pytest.mark.parametrize(("goal", "kept"), [("speed", True), ("balanced", False), ("memory", False)])
def test_memory_counts_as_the_goal_says(searched, goal, kept):
    """Three times the memory for half as much speed again."""
    world = World({"cache-dataset": 1.5}, {"cache-dataset": 3.0})
    tuning, written = searched(world, [CACHE], wish=Wish(goal, frozenset(Numerics)))
    assert bool(written.settings) is kept
    assert tuning.verdicts[0].memory == pytest.approx(2.0, abs=0.01)
    assert kept or "+200% peak memory" in tuning.verdicts[0].reason


def test_for_memory_a_slower_setting_is_kept(searched):
    world = World({"grad-checkpointing": 0.7}, {"grad-checkpointing": 0.4})
    wish = Wish("memory", frozenset(Numerics))
    tuning, written = searched(world, [offer("grad-checkpointing", True)], wish=wish)
    assert written.settings == {"grad-checkpointing": True}
    assert tuning.gain.value == pytest.approx(-0.3, abs=0.02)


def test_what_needs_more_memory_than_the_limit_is_dropped(searched):
    world = World({"batch-size": 2.0}, {"batch-size": 2.0})
    wish = Wish("speed", frozenset(Numerics), memory_limit=3 << 29)
    tuning, written = searched(world, [offer("batch-size", 64)], wish=wish)
    assert written.settings == {}
    assert tuning.verdicts[0].reason == "it needs more memory than the limit"


def test_what_does_not_fit_the_budget_leaves_room_for_what_does(searched):
    """Compiling takes longer than there is time; a setting that promises less does not."""
    world = World({"cache-dataset": 2.0, "compile": 1.5, "num-workers": 1.3})
    last = offer("num-workers", 2, 0.1)
    tuning, _ = searched(world, [CACHE, COMPILE, last], budget=SearchBudget(seconds=14), seconds=1.0)
    kept, left = rulings(tuning)[:2], tuning.verdicts[2:]
    assert kept == [("cache-dataset", Ruling.KEEP), ("num-workers", Ruling.KEEP)]
    assert [(each.knob, each.gain, each.reason) for each in left] == [("compile", None, NO_TIME)]
    assert "compile=default needs about" in tuning.ended


@pytest.mark.parametrize(("gain", "ruling", "rounds"), [(1.12, Ruling.KEEP, 5), (1.0, Ruling.DROP, 4)])
def test_what_seems_worth_it_gets_more_rounds_on_a_restless_machine(searched, gain, ruling, rounds):
    """Runs scatter by a tenth: four rounds do not tell a gain of 12 % from noise, and nothing is spent on none."""
    world = World({})
    restless = cycle((0.90, 1.06, 0.96, 1.10, 1.02, 0.93))
    world.speeds = lambda settings: next(restless) * (gain if "compile" in settings else 1.0)
    tuning, _ = searched(world, [COMPILE])
    assert rulings(tuning) == [("compile", ruling)]
    duelled = tuning.verdicts[0].gain.trials
    assert duelled >= 2 * rounds if ruling is Ruling.KEEP else duelled == 2 * rounds


def test_a_job_of_many_lengths_is_searched_by_tokens(searched):
    """By samples the same runs scatter by half, and no gain of 30 % could be told from that."""
    tuning, written = searched(World({"compile": 1.3}, tokens=True), [COMPILE, WORKERS])
    assert rulings(tuning)[:2] == [("num-workers", Ruling.DROP), ("compile", Ruling.KEEP)]
    assert written.settings == {"compile": "default"}
    assert (tuning.baseline.counts, tuning.tuned.counts) == ("tokens", "tokens")
    assert tuning.gain.value == pytest.approx(0.3, abs=0.03)


def test_a_setting_that_hides_the_tokens_is_held_against_samples(searched):
    """Never tokens of one against samples of the other, which would be fifty times slower."""
    world = World({"cache-dataset": 4.0}, tokens=True, blind=("cache-dataset",))
    tuning, written = searched(world, [CACHE])
    assert written.settings == {"cache-dataset": "memory"}
    assert (tuning.baseline.counts, tuning.tuned.counts) == ("samples", "samples")
    assert 1.0 < tuning.gain.value < 7.0


def test_a_search_that_goes_on_keeps_time_for_the_guard_before_it_has_run_once(searched):
    """Each of its runs may take half a trial, so up to 120 s in all: nothing more is begun."""
    world = World({"bucketing": 1.5, "precision": 1.3, "compile": 1.2}, interrupt_at=7)  # before its answer
    searched(world, [BUCKETS, BF16], seconds=10.0)
    before, world.interrupt_at = len(world.made), 10**6
    searched(world, [COMPILE], seconds=10.0, budget=SearchBudget(seconds=130))
    made = [kind for kind, _ in world.made[before:]]
    assert made[:2] == ["trial", "guard"]


def test_an_answer_of_the_guard_may_exceed_the_budget_by_a_tenth(tmp_path):
    (tmp_path / "train.py").write_text("")
    ledger = Ledger(tmp_path, Job(("python", "train.py"), str(tmp_path), "train"))
    tell = Said(lambda _: None, lambda _: None, lambda _: None)
    search = Search(
        FakeBench(World(), tmp_path), ledger, None, KNOBS, Wish(), SearchBudget(seconds=100), tell
    )
    assert [search.guard.fits(more_s) for more_s in (105.0, 115.0)] == [True, False]
    assert not search.in_time(0, 105.0)


def test_a_trial_may_not_outlast_the_budget_by_much(tmp_path):
    bench = FakeBench(World({}), tmp_path, limit_s=20.0)
    job, said = Job(("python", "train.py"), str(tmp_path), "train"), Said(*[lambda _: None] * 3)
    limits = {}
    for seconds in (None, 600.0, 30.0):
        search = Search(
            bench, Ledger(tmp_path, job), None, KNOBS, Wish("speed"), SearchBudget(seconds=seconds), said
        )
        limits[seconds] = search.limit_s
    assert limits[None] == limits[600.0] == 20.0
    assert AS_LONG * limits[30.0] == pytest.approx(30.0, abs=1.0)
