"""The search as such, beside made-up trials and experiments: what is kept, dropped, left out, and gone on with."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from itertools import cycle
from types import SimpleNamespace

import pytest

from hotlap.errors import FactError
from hotlap.experiments.analysis import Change
from hotlap.facts.diagnosis import Interval
from hotlap.facts.experiment import FREE_INPUT, Experiment, Experiments, ExperimentState
from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Figures, Rate, Status, Trial, steadiest
from hotlap.facts.verdict import Gain, KnobVerdict, Ruling, Sameness, Witness
from hotlap.measure.ledger import Ledger, Ruled
from hotlap.measure.runner import AS_LONG
from hotlap.plan.catalogue import all_knobs
from hotlap.plan.file import read_plan
from hotlap.plan.record import Fitted, Record
from hotlap.ports.knob import UNCHANGED, Numerics
from hotlap.search import passes
from hotlap.search import passes as untested
from hotlap.search.candidates import NO_TIME, Candidate, Said, SearchBudget, Wish
from hotlap.search.guard_runs import GuardRuns
from hotlap.search.run import run as run_search
from hotlap.search.search import Search

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
    switches: tuple = ()  # knobs that experiments can switch while the job runs
    in_process: object = None  # how fast those are there, where that is not what fresh processes show
    refuses: dict = field(default_factory=dict)  # knobs that experiments refuse, and why
    numerics: dict = field(default_factory=dict)  # classes on this job, where they are not the knob's own
    free: float | None = None  # gain of free input
    late: tuple = ()  # knobs for which the first pass of experiments has no time
    loose: tuple = ()  # knobs of which the first pass of experiments shows too little
    cannot: dict = field(default_factory=dict)  # knobs that cannot act, as the script says when it is asked
    offers: tuple = ()
    tried: dict = field(default_factory=dict)  # experiments by number of their trial

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

    def trial(self, number, plan, phases=(), lead=None):
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
        if lead is not None:
            self.world.tried[number] = self.experimented(plan, lead)
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

    def witness(self, name, plan, steps, seed, samples=0, epoch=0, reference=""):
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

    def experiments(self, number):
        return self.world.tried.get(number)

    def experimented(self, plan, lead):
        """One block of each change that is wanted."""
        world = self.world
        changes = [Change(each.knob, each.setting, each.bound, each.beside) for each in world.offers]
        found = [self.experiment(plan, each) for each in changes if lead.wanted(each)]
        if world.free is not None:
            found.append(shown(FREE_INPUT, "true", world.free))
        world.late = world.loose = ()
        return Experiments(tuple(each for each in found if each is not None), 1.0)

    def experiment(self, plan, change):
        world, setting = self.world, str(change.setting).lower() if change.setting is True else change.setting
        named = (change.knob, str(setting))
        if change.knob in world.late:
            return Experiment(*named, ExperimentState.NOT_TRIED, reason="the time for experiments was up")
        if change.knob in world.refuses:
            return Experiment(*named, ExperimentState.REFUSED, reason=world.refuses[change.knob])
        if change.knob not in world.switches:
            return None
        if change.knob in world.loose:
            return Experiment(
                *named, ExperimentState.UNDECIDED, 0.01, Interval(-0.12, 0.2), "bitwise", blocks=8
            )
        speeds = world.in_process or world.speed
        gain = speeds({**plan.settings, **change.settings}) / speeds(plan.settings) - 1
        return shown(*named, gain, world.numerics.get(change.knob, KNOBS[change.knob].numerics.value))

    def ask(self, plan):
        self.world.start("ask", plan.settings)
        fitted = [
            Fitted(key, plan.settings[key], key not in self.world.cannot, "", self.world.cannot.get(key, ""))
            for key in plan.settings
        ]
        return (Record(1, 0, tuple(fitted), steps=2),), False


def shown(knob, setting, gain, numerics=""):
    state = ExperimentState.FASTER if gain >= 0.03 else ExperimentState.NO_GAIN
    return Experiment(knob, setting, state, gain, Interval(gain - 0.02, gain + 0.02), numerics, blocks=4)


@dataclass(frozen=True)
class SimpleNamespaceTimeline:
    ops: object = None
    optimizers: tuple = ()
    lines: tuple = ()
    workers: tuple = ()
    steady_from: int = 0
    world: int = 1
    comm_s: float | None = None
    steps: object = field(default_factory=lambda: SimpleNamespace(start=[], wall=[], samples=[], tokens=[]))


@pytest.fixture
def searched(tmp_path, monkeypatch):
    """`searched(world, offers)`: a whole search in one folder; the offers stand in for what a diagnosis proposes."""
    (tmp_path / "train.py").write_text("")
    job = Job(("python", "train.py"), str(tmp_path), "train")
    said = []

    def run(world, offers, *, wish=None, budget=None, seconds=1.0):
        def offered(bounded, _, __, plan, ___, tried):
            standing = plan.settings.get
            new = [each for each in bounded if each.key not in tried and standing(each.knob) != each.setting]
            return sorted(new, key=lambda each: -each.bound)

        world.offers = tuple(offers)
        tuples = [(each.knob, each.setting, each.bound, each.beside) for each in offers]
        monkeypatch.setattr(passes, "candidates_for", lambda *_: tuples)
        monkeypatch.setattr(untested, "candidates", offered)
        bench = FakeBench(world, tmp_path, seconds=seconds)
        tell = Said(lambda _: None, lambda _: None, said.append)
        wish = wish or Wish("speed", frozenset(Numerics))
        host = SimpleNamespace(named="a host")
        search = Search(
            bench, Ledger(tmp_path, job), host, KNOBS, wish, budget or SearchBudget(seconds=600), tell
        )
        tuning = run_search(search)
        return tuning, read_plan(tmp_path / "plan.yaml", KNOBS)

    run.said = said
    return run


def offer(knob, setting, bound=0.5, beside=None):
    return Candidate(knob, setting, bound, beside or {})


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
    assert [(each.setting, each.ruling) for each in tuning.verdicts] == [
        (384, Ruling.KEEP),
        (385, Ruling.DROP),
    ]
    assert not any(385 in settings.values() for settings in trials_of(world))


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


# -- experiments --------------------------------------------------------------------------------------------------

BUCKETS, BF16 = offer("bucketing", "tokens", 0.3), offer("precision", "bf16-mixed", 0.1)
KEPT_MEMORY, LARGER = offer("keep-memory", True, 0.05), offer("batch-size", 8, 0.2)
LAYOUT, EVERY = offer("channels-last", True, 0.4), offer("validate-every", 8, 0.4)
ALL_LIVE = ("precision", "fused-optimizer", "channels-last", "keep-memory", "num-workers", "cache-dataset")
EXACT = Wish("speed", frozenset(UNCHANGED))


def trials_of(world):
    return [settings for kind, settings in world.made if kind == "trial"]


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
