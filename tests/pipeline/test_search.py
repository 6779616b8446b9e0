"""The search as such, beside made-up trials: what is kept, dropped, left out, interrupted and gone on with."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field, replace
from itertools import cycle
from types import SimpleNamespace

import pytest

from hotlap.facts.blocks import Block
from hotlap.facts.diagnosis import Interval
from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.rates import Rate, steadiest
from hotlap.facts.trial import Figures, Status, Trial
from hotlap.facts.verdict import Gain, Ruling, Sameness, Verdict
from hotlap.facts.witness import Witness
from hotlap.measure.ledger import Ledger, Ruled
from hotlap.measure.runner import Screened
from hotlap.pipeline import screening as screenings
from hotlap.pipeline import search as searching
from hotlap.pipeline.asked import Budget, Said
from hotlap.pipeline.guarding import GuardRuns
from hotlap.pipeline.reasons import NO_TIME
from hotlap.pipeline.search import Search
from hotlap.ports.knob import Numerics
from hotlap.propose.search import Candidate, Wish
from hotlap.seams.catalogue import all_knobs
from hotlap.seams.plan_file import read_plan

KNOBS = all_knobs()
SCATTER = (1.0, 1.004, 0.997, 1.002, 0.999)


@dataclass
class World:
    """How fast the job is under which settings, what becomes of it, and when the user has had enough."""

    speeds: dict = field(default_factory=dict)  # knob to factor; a function of the settings decides alone
    memory: dict = field(default_factory=dict)
    dead: tuple = ()
    idle: tuple = ()
    wrong: tuple = ()  # settings that train another model
    shuffles: tuple = ()  # settings that train the same one on other batches
    quiet_seeds: int = 0  # the first ones show nothing of it
    astray: tuple = ()  # values that train another one, which the first seed does not show
    bulky: tuple = ()  # settings under which one batch holds all that the guard's runs see
    interrupt_at: int = 10**6
    made: list = field(default_factory=list)  # (kind, settings) of every process
    phases: list = field(default_factory=list)  # after the window of every trial
    samples: list = field(default_factory=list)  # that every run of the guard was to see
    tokens: bool = False  # batches of very different lengths show how long they are
    blind: tuple = ()  # settings under which they do not
    noisy: bool = False  # in the first run a neighbour's noise is all that is seen
    shows: dict = field(
        default_factory=dict
    )  # blocks within one process tell speeds, with these settings beside

    def start(self, kind, settings):
        self.made.append((kind, dict(settings)))
        return len(self.made) >= self.interrupt_at

    def luck(self):
        """Samples a second depend on which lengths the window of a trial has met."""
        return (1.0, 1.5, 0.7, 1.3, 0.6)[len(self.made) % 5]

    def speed(self, settings):
        rate = 100.0 * SCATTER[len(self.made) % len(SCATTER)]
        if callable(self.speeds):
            return rate * self.speeds(settings)
        for key in settings:
            rate *= self.speeds.get(key, 1.0)
        return rate


@dataclass(frozen=True)
class FakeBench:
    world: World
    folder: object
    limit_s: float | None = None
    seconds: float = 1.0
    counts: str = ""

    def trial(self, number, plan, phases=()):
        interrupted = self.world.start("trial", plan.settings)
        self.world.phases.append(phases)
        if interrupted:
            return Trial(number, plan, Status.INTERRUPTED, 1.0), ()
        if set(self.world.dead) & set(plan.settings):
            return Trial(number, plan, Status.DEAD, 1.0, reason="planted"), ()
        memory = 1 << 30
        for key in plan.settings:
            memory = int(memory * self.world.memory.get(key, 1.0))
        rate = self.world.speed(plan.settings)
        figures = self._figures(rate, memory, plan)
        stood = tuple(key for key in plan.settings if key not in self.world.idle)
        refused = {key: "planted" for key in plan.settings if key in self.world.idle}
        trial = Trial(number, plan, Status.DONE, self.seconds, figures, stood=stood, refused=refused)
        return trial, (SimpleNamespaceTimeline(),)

    def _figures(self, rate, memory, plan):
        """By tokens where the job shows them; a plan among `blind` hides them."""
        by_tokens = 0.1 if self.world.noisy and len(self.world.made) == 1 else 0.01
        rates = {"samples": Rate(rate * self.world.luck(), 0.1), "tokens": Rate(50 * rate, by_tokens)}
        if not self.world.tokens or set(self.world.blind) & set(plan.settings):
            rates = {"samples": Rate(rate, 0.01)}
        chosen = self.counts if self.counts in rates else steadiest(rates)
        startup_s = self.seconds - 0.6  # 60 steps of 10 ms
        return Figures(
            rates[chosen].per_s, chosen, 10.0, 1.0, 32.0, memory, 0.9, 0.0, startup_s, 0.0, 60, rates=rates
        )

    def witness(self, name, plan, steps, seed, samples=0):
        interrupted = self.world.start("guard", plan.settings)
        self.world.samples.append(samples)
        off = 5.0 if set(self.world.wrong) & set(plan.settings) else 0.0
        shuffled = seed >= self.world.quiet_seeds and set(self.world.shuffles) & set(plan.settings)
        off += 0.21 * (-1) ** seed if shuffled else 0.0
        off += 2.0 if seed and set(self.world.astray) & set(plan.settings.values()) else 0.0
        losses = tuple(2.0 - 0.01 * step + 0.1 * seed + off for step in range(steps))
        way = tuple((float(step + 1),) for step in range(steps))
        batches = ("b",) * steps
        batch = 8 * steps if set(self.world.bulky) & set(plan.settings) else 8
        counted = tuple(range(batch, batch * steps + 1, batch))
        seen = Witness(seed, losses, counted, batches, (0.0,), way, "p", "g", steps)
        return (None if interrupted else seen), interrupted

    def screen(self, number, schedule):
        """Blocks of twelve steps each, at the speed of their plan."""
        self.world.start("screen", {})
        if not self.world.shows:
            return Screened(Trial(number, Plan(), Status.SCREENED, 5.0), (), (SimpleNamespaceTimeline(),))
        starts, walls, blocks, now = [], [], [], 0
        for plan in schedule.order:
            wall = int(1e9 / self.world.speed({**schedule.plans[plan], **self.world.shows}))
            blocks.append(Block(plan, now, now + 12 * wall))
            starts += [now + step * wall for step in range(12)]
            walls += [wall] * 12
            now += 12 * wall
        columns = SimpleNamespace(start=starts, wall=walls, samples=[8] * len(starts))
        seen = SimpleNamespaceTimeline(steps=columns)
        return Screened(Trial(number, Plan(), Status.SCREENED, 5.0), tuple(blocks), (seen,))


@dataclass(frozen=True)
class SimpleNamespaceTimeline:
    ops: object = None
    steps: object = field(default_factory=lambda: SimpleNamespace(start=[], wall=[], samples=[], tokens=[]))


@pytest.fixture
def searched(tmp_path, monkeypatch):
    """`searched(world, offers)`: a whole search in one folder; the offers stand in for what a diagnosis proposes."""
    monkeypatch.setattr(searching, "diagnose", lambda *_: None)
    (tmp_path / "train.py").write_text("")
    job = Job(("python", "train.py"), str(tmp_path), "train")
    said = []

    def run(world, offers, *, wish=None, budget=None, seconds=1.0):
        def offered(_, __, ___, ____, plan, _____, tried):
            standing = plan.settings.get
            new = [each for each in offers if each.key not in tried and standing(each.knob) != each.setting]
            return sorted(new, key=lambda each: -each.promise)

        monkeypatch.setattr(searching, "candidates", offered)
        bench = FakeBench(world, tmp_path, seconds=seconds)
        tell = Said(lambda _: None, lambda _: None, said.append)
        wish = wish or Wish("speed", frozenset(Numerics))
        host = SimpleNamespace(named="a host")
        search = Search(bench, Ledger(tmp_path, job), host, KNOBS, wish, budget or Budget(seconds=600), tell)
        tuning = search.run()
        return tuning, read_plan(tmp_path / "plan.yaml", KNOBS)

    run.said = said
    return run


def offer(knob, setting, predicted=0.5, beside=None):
    return Candidate(knob, setting, predicted, Interval(0.0, 1.0), 0.5, beside or {})


CACHE, WORKERS = offer("cache-dataset", "memory", 0.9), offer("num-workers", 2, 0.5)
COMPILE = offer("compile", "default", 0.3)


def rulings(tuning):
    return [(each.knob, each.ruling) for each in tuning.verdicts]


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
    assert tuning.verdicts[1].reason == "it is no faster"


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
    searched(world, [CACHE, WORKERS], budget=Budget(trials=3))
    before = len(world.made)
    tuning, written = searched(world, [CACHE, WORKERS])
    assert "1 verdicts are known" in "".join(searched.said)
    assert rulings(tuning) == [("cache-dataset", Ruling.KEEP), ("num-workers", Ruling.DROP)]
    assert written.settings == {"cache-dataset": "memory"}
    assert all(kind != "guard" for kind, _ in world.made[before:])  # what it said is in the ledger


@pytest.mark.parametrize(("seconds", "seeds", "ruling"), [(600, 8, Ruling.KEEP), (30, 3, Ruling.DROP)])
def test_the_guard_asks_more_seeds_until_they_decide_or_the_budget_ends(searched, seconds, seeds, ruling):
    """Other batches make as much of a difference as other seeds: of that three say nothing."""
    world = World({"bucketing": 1.5}, shuffles=("bucketing",))
    budget = Budget(seconds=seconds)
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


def guard_of(world, folder):
    (folder / "train.py").write_text("")
    ledger = Ledger(folder, Job(("python", "train.py"), str(folder), "train"))
    return GuardRuns(FakeBench(world, folder), ledger, KNOBS, lambda _: None)


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


def by_batch(settings):
    """Twice as fast with each doubling, and by a fifth with the fused optimizer."""
    faster = {None: 1.0, 64: 2.0, 128: 4.0}[settings.get("batch-size")]
    return faster * (1.2 if "fused-optimizer" in settings else 1.0)


DOUBLED, AGAIN = (offer("batch-size", size, 30 / size, {"scale-lr": "sqrt"}) for size in (64, 128))
FUSED = offer("fused-optimizer", "fused", 0.1)


def test_a_batch_of_which_the_guard_could_tell_nothing_is_not_tried(searched):
    """It holds more than half of what 24 steps of 32 samples see."""
    world = World({"batch-size": 1.5})
    tuning, _ = searched(world, [offer("batch-size", 384), offer("batch-size", 385, 0.9)])
    assert [each.setting for each in tuning.verdicts] == [384]


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
        verdict = Verdict(
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
    kept = Verdict("fused-optimizer", "fused", Ruling.KEEP, Gain(0.2, Interval(0.1, 0.3)))
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


@pytest.mark.parametrize(("seconds", "tried"), [(5, 1), (50, 1), (600, 2)])
def test_a_candidate_is_begun_only_where_all_that_follows_is_within_the_budget(searched, seconds, tried):
    """A round and the proof are six trials, of 10 s here. The first candidate is tried in any case."""
    world = World({"cache-dataset": 2.0, "compile": 1.3})
    tuning, _ = searched(world, [CACHE, COMPILE], budget=Budget(seconds=seconds), seconds=10.0)
    assert [each.reason != NO_TIME for each in tuning.verdicts] == [number < tried for number in range(2)]
    assert (tuning.ended == "the budget is spent") is (tried == 1)


@pytest.mark.parametrize(("answer_s", "rounds"), [(1.0, 4), (20.0, 1)])
def test_another_round_leaves_room_for_the_guard(searched, monkeypatch, answer_s, rounds):
    monkeypatch.setattr(GuardRuns, "answer_s", lambda *_, **__: answer_s)
    noise = random.Random(1)
    world = World(lambda _: noise.uniform(0.8, 1.2))
    searched(world, [COMPILE], budget=Budget(seconds=20))
    assert world.made.count(("trial", {"compile": "default"})) == rounds


def test_each_setting_alone_is_measured_with_what_the_proof_has_left(searched):
    """Six trials do not fit any more, which ends the search; one does, and the first setting ran alone in its duel."""
    world = World({"cache-dataset": 2.0, "compile": 1.3})
    least = offer("num-workers", 2, 0.1)
    tuning, _ = searched(world, [CACHE, COMPILE, least], budget=Budget(trials=10))
    assert tuning.ended == "the budget is spent"
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


def test_a_winner_that_does_not_win_again_is_no_winner(searched):
    """Fast in its duel, then not: the machine had helped it."""
    world = World()
    world.speeds = lambda settings: 1.5 if settings and len(world.made) < 8 else 1.0
    tuning, written = searched(world, [CACHE])
    assert rulings(tuning) == [("cache-dataset", Ruling.KEEP)]
    assert written.settings == {}
    assert "could not be told from the script as it is" in tuning.ended
    assert tuning.gain is None


def test_what_the_machine_does_to_a_whole_round_hides_no_gain(searched):
    """It is half as fast in one round as in another; within each of them the setting is a tenth faster."""
    world = World()
    paces = (1.0, 0.6, 1.2, 0.8, 1.1)

    def speed(settings):
        trials = [kind for kind, _ in world.made].count("trial")
        return paces[trials // 2 % len(paces)] * (1.1 if settings else 1.0)

    world.speeds = speed
    tuning, written = searched(world, [CACHE])
    assert written.settings == {"cache-dataset": "memory"}
    assert tuning.verdicts[0].gain.value == pytest.approx(0.1, abs=0.02)
    assert tuning.gain.value == pytest.approx(0.1, abs=0.02)


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
    first = replace(WORKERS, predicted=2.0)
    tuning, written = searched(world, [first, CACHE])
    assert written.settings == {"cache-dataset": "memory"}
    assert tuning.verdicts[-1].reason == "the plan is as fast without it by now"


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
    assert tuning.verdicts[0].reason == "it is no faster"


def test_a_second_try_survives_the_end_of_a_search(searched):
    """The budget ends when the numbers have become shorter; the search that goes on asks the batch again."""
    alone = {"precision": 1.3, "batch-size": 1.0}
    world = World(
        lambda settings: 1.56 if len(settings) == 2 else alone[next(iter(settings))] if settings else 1.0
    )
    offers = [offer("batch-size", 64, 0.9), offer("precision", "bf16-mixed", 0.5)]
    first, _ = searched(world, offers, budget=Budget(trials=12))
    assert rulings(first) == [("batch-size", Ruling.DROP), ("precision", Ruling.KEEP)]
    tuning, written = searched(world, offers)
    assert rulings(tuning)[-1] == ("batch-size", Ruling.KEEP)
    assert written.settings == {"precision": "bf16-mixed", "batch-size": 64}


def test_a_further_step_of_a_knob_promises_no_more_than_the_last_one_brought(searched):
    """The larger batch could save a quarter at most; the last step to it brought a tenth, so compiling is first."""
    steps = [offer("batch-size", 64, 0.5), replace(offer("batch-size", 128, None), ceiling=1.0)]
    tuning, _ = searched(World({"batch-size": 1.1}), [*steps, replace(COMPILE, predicted=0.2)])
    assert [each.setting for each in tuning.verdicts] == [64, "default", 128]


def test_what_goes_with_a_setting_is_not_measured_alone_but_with_it(searched):
    batch = offer("batch-size", 64, 2.0, {"scale-lr": "sqrt"})
    world = World({"batch-size": 1.5, "cache-dataset": 2.0})
    tuning, written = searched(world, [CACHE, batch])
    assert written.settings == {"cache-dataset": "memory", "scale-lr": "sqrt", "batch-size": 64}
    assert set(tuning.alone) == {"cache-dataset", "batch-size"}
    assert ("trial", {"scale-lr": "sqrt"}) not in world.made


def test_what_goes_with_a_setting_is_left_out_with_it(searched):
    world = World(
        lambda settings: 3.0 if "cache-dataset" in settings else 1.5 if "batch-size" in settings else 1.0
    )
    _, written = searched(world, [offer("batch-size", 64, 2.0, {"scale-lr": "sqrt"}), CACHE])
    assert written.settings == {"cache-dataset": "memory"}


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
    assert len(world.made) == 3


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


def test_live_settings_share_a_process_where_that_takes_less_time(searched):
    """Those of a loader among themselves, as workers need longer blocks; trials of half a second cost less."""
    live = [WORKERS, offer("fused-optimizer", "fused", 0.4), offer("prefetch-factor", 4, 0.3)]
    world = World({"num-workers": 1.5})
    searched(world, live, seconds=30.0)
    assert [kind for kind, _ in world.made[:2]] == ["trial", "screen"]
    assert "2 settings in turn within one process" in searched.said
    short = World({"num-workers": 1.5})
    wish = Wish("speed", frozenset({Numerics.BITWISE, Numerics.ROUNDING}))
    searched(short, [WORKERS, live[2]], wish=wish, seconds=0.5)
    assert "screen" not in [kind for kind, _ in short.made]


def test_a_single_live_setting_is_switched_where_two_rounds_of_processes_cost_more(searched):
    world = World({"fused-optimizer": 1.5})
    searched(world, [offer("fused-optimizer", "fused", 0.4)], seconds=0.6)
    assert [kind for kind, _ in world.made[:2]] == ["trial", "screen"]


def test_what_blocks_cannot_tell_from_noise_has_more_turns_but_no_processes_of_its_own(searched):
    """Those scatter more: four rounds of them would cost more, and tell less."""
    noise = random.Random(1)
    world = World(lambda _: noise.uniform(0.9, 1.1), shows=SHOWN)
    tuning, _ = searched(world, [offer("fused-optimizer", "fused", 0.4)], seconds=30.0)
    assert [kind for kind, _ in world.made].count("screen") == 3
    assert ("trial", {"fused-optimizer": "fused"}) not in world.made
    assert tuning.verdicts[0].reason == "the gain cannot be told from noise"
    assert tuning.verdicts[0].gain.interval.high > 0.03


def test_what_the_budget_left_undecided_is_told_and_tried_by_a_search_that_goes_on(searched):
    noise = random.Random(3)
    world = World(
        lambda each: noise.uniform(0.8, 1.2) * (1.1 if "fused-optimizer" in each else 1), shows=SHOWN
    )
    offers = [offer("fused-optimizer", "fused", 0.4)]
    tuning, _ = searched(world, offers, budget=Budget(seconds=20), seconds=10.0)
    assert [kind for kind, _ in world.made] == ["trial", "screen"]
    assert tuning.ended == "the budget is spent"
    assert tuning.verdicts[0].reason == "the budget was spent before it was decided"
    assert tuning.verdicts[0].gain.interval.low < 0.0 < tuning.verdicts[0].gain.value
    searched(world, offers)
    assert ("trial", {"fused-optimizer": "fused"}) in world.made


def test_what_promises_most_does_not_wait_for_settings_that_share_a_process(searched):
    live = [offer("fused-optimizer", "fused", 0.4), WORKERS, offer("prefetch-factor", 4)]
    world = World({"cache-dataset": 2.0})
    searched(world, [*live, CACHE], seconds=30.0)
    assert [kind for kind, _ in world.made[:2]] == ["trial", "trial"]
    assert world.made[1][1] == {"cache-dataset": "memory"}


LIVE = [
    offer("fused-optimizer", "fused", 0.4),
    offer("precision", "bf16-mixed", 0.3),
    offer("channels-last", True),
]
SHOWN = {"in blocks": True}  # makes blocks tell speeds


def test_what_pays_within_one_process_goes_on_together(searched):
    """One duel and one answer of the guard for both; the gain of each is what its blocks have shown."""
    world = World({"fused-optimizer": 1.1, "precision": 1.3}, shows=SHOWN)
    tuning, written = searched(world, LIVE, seconds=30.0)
    assert rulings(tuning) == [
        ("channels-last", Ruling.DROP),
        ("precision", Ruling.KEEP),
        ("fused-optimizer", Ruling.KEEP),
        ("channels-last", Ruling.DROP),
    ]
    assert [each.gain.value for each in tuning.verdicts[1:3]] == pytest.approx([0.3, 0.1], abs=0.02)
    assert all(each.live for each in tuning.verdicts)
    assert written.settings == {"precision": "bf16-mixed", "fused-optimizer": "fused"}
    assert tuning.gain.value == pytest.approx(0.43, abs=0.03)
    tried = [settings for kind, settings in world.made if kind == "trial"]
    assert {"precision": "bf16-mixed"} not in tried[:3]  # before the proof
    assert [kind for kind, _ in world.made].count("guard") == 6


def test_what_has_missed_in_blocks_is_asked_again_after_what_was_never_tried(searched):
    """Doubled batches, which nobody predicts, make the incumbent faster by more than a tenth each."""
    world = World(by_batch, shows=SHOWN)
    unpredicted = [replace(each, predicted=None, interval=None, ceiling=1.6) for each in (DOUBLED, AGAIN)]
    tuning, _ = searched(world, [offer("channels-last", True, 0.45), *unpredicted], seconds=30.0)
    assert [(each.knob, each.setting) for each in tuning.verdicts] == [
        ("channels-last", True),
        ("batch-size", 64),
        ("batch-size", 128),
        ("channels-last", True),
    ]


@pytest.mark.parametrize("fault", ["dead", "wrong"])
def test_what_does_not_hold_together_is_tried_one_by_one(searched, fault):
    world = World({"fused-optimizer": 1.2, "precision": 1.3}, shows=SHOWN, **{fault: ("precision",)})
    tuning, written = searched(world, LIVE, seconds=30.0)
    assert written.settings == {"fused-optimizer": "fused"}
    assert ("precision", Ruling.DROP) in rulings(tuning)
    assert "together they do not hold: one by one" in searched.said


def test_what_blocks_show_and_fresh_processes_do_not_is_not_kept(searched):
    """Memory that is warm in one process, say."""
    world = World(shows=SHOWN)
    world.speeds = lambda settings: 1.3 if "in blocks" in settings and "precision" in settings else 1.0
    tuning, written = searched(world, LIVE, seconds=30.0)
    assert written.settings == {}
    assert ("precision", Ruling.KEEP) not in rulings(tuning)


def test_what_another_of_its_group_has_carried_is_left_out(searched):
    """Better in blocks, worse in fresh processes: beside one that brings much it is kept at first, not in the end."""
    world = World(shows=SHOWN)
    blocks = {"precision": 1.4, "fused-optimizer": 1.1}
    fresh = {"precision": 1.4, "fused-optimizer": 0.9}

    def speed(settings):
        factors = blocks if "in blocks" in settings else fresh
        return math.prod(factors.get(key, 1.0) for key in settings)

    world.speeds = speed
    tuning, written = searched(world, LIVE, seconds=30.0)
    assert ("fused-optimizer", Ruling.KEEP) in rulings(tuning)
    assert written.settings == {"precision": "bf16-mixed"}
    assert tuning.verdicts[-1].reason == "the plan is as fast without it by now"


def test_what_does_not_fit_the_budget_leaves_room_for_what_does(searched):
    """Compiling takes longer than there is time; a setting that promises less does not."""
    world = World({"cache-dataset": 2.0, "compile": 1.5, "num-workers": 1.3})
    last = offer("num-workers", 2, 0.1)
    tuning, _ = searched(world, [CACHE, COMPILE, last], budget=Budget(seconds=14), seconds=1.0)
    kept, left = rulings(tuning)[:2], tuning.verdicts[2:]
    assert kept == [("cache-dataset", Ruling.KEEP), ("num-workers", Ruling.KEEP)]
    assert [(each.knob, each.gain, each.reason) for each in left] == [("compile", None, NO_TIME)]
    assert tuning.ended == "the budget is spent"


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


def test_one_noisy_run_does_not_make_a_search_count_samples(searched, monkeypatch):
    """Neither in duels nor in blocks of steps."""
    counts = []
    monkeypatch.setattr(screenings, "pairs", lambda *given: counts.append(given[-1]) or {})
    world = World({"cache-dataset": 2.0, "compile": 1.3}, tokens=True, noisy=True, shows=SHOWN)
    tuning, written = searched(world, [CACHE, COMPILE, offer("fused-optimizer", "fused", 0.4)], seconds=30.0)
    assert written.settings == {"cache-dataset": "memory", "compile": "default"}
    assert tuning.tuned.counts == "tokens"
    assert set(counts) == {"tokens"}


def test_a_setting_that_hides_the_tokens_is_held_against_samples(searched):
    """Never tokens of one against samples of the other, which would be fifty times slower."""
    world = World({"cache-dataset": 4.0}, tokens=True, blind=("cache-dataset",))
    tuning, written = searched(world, [CACHE])
    assert written.settings == {"cache-dataset": "memory"}
    assert (tuning.baseline.counts, tuning.tuned.counts) == ("samples", "samples")
    assert 1.0 < tuning.gain.value < 7.0


@pytest.mark.parametrize(("seconds", "rehearses"), [(600, True), (60, False)])
def test_workers_are_rehearsed_once_where_there_is_time_for_it(searched, seconds, rehearses):
    world = World({"fused-optimizer": 2.0})
    searched(world, [offer("fused-optimizer", "fused")], budget=Budget(seconds=seconds))
    assert ("ceiling" in world.phases[0]) is rehearses
    assert len(world.phases) > 2
    assert not any("ceiling" in phases for phases in world.phases[1:])


def sure(knob, setting, predicted=0.5, beside=None):
    """Predicted to help even at the worst."""
    return replace(offer(knob, setting, predicted, beside), interval=Interval(predicted / 2, 2 * predicted))


BUCKETS, BF16 = sure("bucketing", "tokens", 0.3), sure("precision", "bf16-mixed", 0.1)
KEPT_MEMORY, LARGER = sure("keep-memory", True, 0.05), sure("batch-size", 8, 0.2, {"scale-lr": "sqrt"})
OPENING = [BUCKETS, LARGER, BF16, KEPT_MEMORY]


def by_another(settings):
    """A larger batch pays only beside memory that is kept, and costs as much without."""
    faster = {"bucketing": 1.3, "precision": 1.2, "keep-memory": 1.05}
    rate = math.prod(faster.get(key, 1.0) for key in settings)
    return rate * ({True: 1.25, False: 0.9}["keep-memory" in settings] if "batch-size" in settings else 1.0)


def test_all_that_is_predicted_to_help_is_tried_as_one_plan(searched):
    """One by one the batch would be dropped before the memory is kept, and tried again at the end at best."""
    world = World(by_another)
    tuning, written = searched(world, OPENING)
    all_of_them = {
        "bucketing": "tokens",
        "scale-lr": "sqrt",
        "batch-size": 8,
        "precision": "bf16-mixed",
        "keep-memory": True,
    }
    assert world.made[1] == ("trial", all_of_them)
    assert written.settings == all_of_them
    assert tuning.guard.sameness is Sameness.SAME
    assert tuning.gain.value == pytest.approx(1.3 * 1.25 * 1.2 * 1.05 - 1, abs=0.05)


def test_each_setting_of_the_opening_is_asked_what_it_brings_beside_the_others(searched):
    tuning, _ = searched(World(by_another), OPENING)
    shown = {each.knob: each for each in tuning.verdicts if each.gain is not None}
    assert {key: round(each.gain.value, 1) for key, each in shown.items()} == {
        "bucketing": 0.3,
        "batch-size": 0.2,
        "precision": 0.2,
        "keep-memory": 0.5,  # without it the batch costs more than it brings
    }
    assert all(each.beside_all and each.ruling is Ruling.KEEP for each in shown.values())


def test_what_the_others_of_an_opening_have_carried_goes(searched):
    """Half precision makes this job slower: the whole is faster all the same."""
    world = World({"bucketing": 1.5, "batch-size": 1.4, "precision": 0.9})
    tuning, written = searched(world, [BUCKETS, LARGER, BF16])
    assert written.settings == {"bucketing": "tokens", "scale-lr": "sqrt", "batch-size": 8}
    dropped = [each for each in tuning.verdicts if each.ruling is Ruling.DROP]
    assert [(each.knob, each.reason) for each in dropped] == [("precision", "it is slower")]
    assert dropped[0].gain.value == pytest.approx(-0.1, abs=0.02)
    assert tuning.gain.value == pytest.approx(1.1, abs=0.05)


@pytest.mark.parametrize(("gain", "stays"), [(1.06, True), (1.0, False)])
def test_what_seems_to_help_stays_on_a_restless_machine(searched, gain, stays):
    """Runs scatter by a tenth: four rounds do not tell a gain of 6 % from noise, and it was predicted."""
    world = World({})
    restless = cycle((0.93, 1.05, 1.06, 0.94, 0.97, 1.08, 1.04, 0.92))

    def speed(settings):
        factors = {"bucketing": 1.6, "batch-size": 1.5, "precision": gain}
        return next(restless) * math.prod(factors.get(key, 1.0) for key in settings)

    world.speeds = speed
    tuning, written = searched(world, [BUCKETS, LARGER, BF16])
    assert ("precision" in written.settings) is stays
    shown = next(each.gain for each in tuning.verdicts if each.knob == "precision" and each.gain)
    assert not shown.decided


@pytest.mark.parametrize("fault", ["dead", "wrong"])
def test_an_opening_that_does_not_hold_is_tried_one_by_one(searched, fault):
    world = World({"bucketing": 1.5, "batch-size": 1.4, "precision": 1.2}, **{fault: ("precision",)})
    tuning, written = searched(world, [BUCKETS, LARGER, BF16])
    assert "together they do not hold: one by one" in searched.said
    assert written.settings == {"bucketing": "tokens", "scale-lr": "sqrt", "batch-size": 8}
    assert ("precision", Ruling.DROP) in rulings(tuning)


def test_what_cannot_act_is_left_out_of_an_opening(searched):
    world = World({"bucketing": 1.5, "batch-size": 1.4}, idle=("precision", "scale-lr"))
    tuning, written = searched(world, [BUCKETS, LARGER, BF16])
    assert written.settings == {"bucketing": "tokens", "batch-size": 8}
    dropped = [(each.knob, each.reason) for each in tuning.verdicts if each.ruling is Ruling.DROP]
    assert dropped == [("precision", "it cannot act: planted")]


def test_an_opening_needs_time_for_all_that_follows(searched):
    """A round, the guard's answer and the proof: six trials of 10 s. One by one the first is tried in any case."""
    world = World(by_another)
    searched(world, OPENING, budget=Budget(seconds=50), seconds=10.0)
    assert world.made[1] == ("trial", {"bucketing": "tokens"})


def test_time_is_kept_back_to_ask_of_each_setting(searched, monkeypatch):
    """Four trials for each of the two, of 10 s: what promises less than the opening is not begun any more."""
    begun = time.monotonic()
    world = World({"bucketing": 1.5, "precision": 1.3, "compile": 1.2})
    # A clock that goes on by 10 s with each process.
    monkeypatch.setattr(searching.time, "monotonic", lambda: begun + 10 * len(world.made))
    tuning, _ = searched(world, [BUCKETS, BF16, COMPILE], budget=Budget(seconds=420), seconds=10.0)
    assert [each.knob for each in tuning.verdicts if each.beside_all] == ["precision", "bucketing"]
    assert [each.reason for each in tuning.verdicts if each.knob == "compile"] == [NO_TIME]


def test_a_search_that_goes_on_keeps_time_for_the_guard_before_it_has_run_once(searched):
    """Each of its runs may take half a trial, so up to 120 s in all: nothing more is begun."""
    world = World({"bucketing": 1.5, "precision": 1.3, "compile": 1.2}, interrupt_at=6)  # before its answer
    searched(world, [BUCKETS, BF16], seconds=10.0)
    before, world.interrupt_at = len(world.made), 10**6
    searched(world, [COMPILE], seconds=10.0, budget=Budget(seconds=190))
    made = [kind for kind, _ in world.made[before:]]
    assert made[:2] == ["trial", "guard"]


def test_what_was_not_asked_for_want_of_time_is_asked_by_a_search_that_goes_on(searched):
    world = World({"bucketing": 1.5, "precision": 1.3})
    tuning, written = searched(world, [BUCKETS, BF16], budget=Budget(trials=7))
    assert [each.gain for each in tuning.verdicts] == [None, None]
    assert len(written.settings) == 2
    tuning, written = searched(world, [BUCKETS, BF16])
    assert [each.knob for each in tuning.verdicts if each.beside_all] == ["precision", "bucketing"]
    assert len(written.settings) == 2


def test_an_opening_is_for_speed_and_for_the_script_as_it_is(searched):
    world = World(by_another)
    searched(world, OPENING, wish=Wish("balanced", frozenset(Numerics)))
    assert world.made[1] == ("trial", {"bucketing": "tokens"})


def test_an_answer_of_the_guard_may_exceed_the_budget_by_a_tenth(tmp_path):
    (tmp_path / "train.py").write_text("")
    ledger = Ledger(tmp_path, Job(("python", "train.py"), str(tmp_path), "train"))
    tell = Said(lambda _: None, lambda _: None, lambda _: None)
    search = Search(FakeBench(World(), tmp_path), ledger, None, KNOBS, Wish(), Budget(seconds=100), tell)
    assert [search.guard.fits(more_s) for more_s in (105.0, 115.0)] == [True, False]
    assert not search.in_time(0, 105.0)


def test_a_setting_of_the_opening_is_not_asked_twice(searched):
    """Neither beside the others and once more for being needless, nor by the latter in the place of the former."""
    world = World(by_another)
    tuning, written = searched(world, OPENING)
    asked = {each.knob: each.gain.trials // 2 for each in tuning.verdicts if each.beside_all}
    trials = [settings for kind, settings in world.made if kind == "trial"]
    own = {"batch-size": {"batch-size", "scale-lr"}}
    for knob, rounds in asked.items():
        gone = own.get(knob, {knob})
        assert (
            trials.count({key: value for key, value in written.settings.items() if key not in gone}) == rounds
        )


def test_what_was_not_asked_is_not_held_to_be_needless(searched, monkeypatch):
    monkeypatch.setattr(searching, "ask_of_each", lambda _: None)
    world = World(by_another)
    _, written = searched(world, OPENING)
    sizes = {len(settings) for kind, settings in world.made if kind == "trial"}
    assert sizes <= {0, 1, 2, len(written.settings)}  # the script, each setting alone, and all of them


def test_a_kill_after_a_setting_has_gone_finds_the_plan_without_it(searched, tmp_path):
    class Watching(World):
        def start(self, kind, settings):
            path = tmp_path / "plan.yaml"
            seen.append(dict(read_plan(path, KNOBS).settings) if path.exists() else {})
            return super().start(kind, settings)

    seen = []
    world = Watching({"bucketing": 1.5, "batch-size": 1.4, "precision": 0.9})
    _, written = searched(world, [BUCKETS, LARGER, BF16])
    gone = next(at for at, (_, settings) in enumerate(world.made) if at > 5 and settings == written.settings)
    later = [plan for at, plan in enumerate(seen) if at > gone + 8]
    assert later and all("precision" not in plan for plan in later)
