"""Made-up jobs for tests of the search: how fast they are under which settings, and what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

from hotlap.experiments.analysis import Change
from hotlap.facts.diagnosis import Interval
from hotlap.facts.experiment import FREE_INPUT, Experiment, Experiments, ExperimentState
from hotlap.facts.job import Job
from hotlap.facts.trial import Figures, Rate, Status, Trial, steadiest
from hotlap.facts.verdict import Witness
from hotlap.measure.ledger import Ledger
from hotlap.plan.catalogue import all_knobs
from hotlap.plan.record import Fitted, Record
from hotlap.ports.knob import UNCHANGED
from hotlap.search.candidates import Candidate, Wish
from hotlap.search.guard_runs import GuardRuns

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


def offer(knob, setting, bound=0.5, beside=None):
    return Candidate(knob, setting, bound, beside or {})


CACHE, WORKERS = offer("cache-dataset", "memory", 0.9), offer("num-workers", 2, 0.5)


COMPILE = offer("compile", "default", 0.3)


def rulings(tuning):
    return [(each.knob, each.ruling) for each in tuning.verdicts]


def guard_of(world, folder):
    (folder / "train.py").write_text("")
    ledger = Ledger(folder, Job(("python", "train.py"), str(folder), "train"))
    return GuardRuns(FakeBench(world, folder), ledger, KNOBS, lambda _: None)


def by_batch(settings):
    """Twice as fast with each doubling, and by a fifth with the fused optimizer."""
    faster = {None: 1.0, 64: 2.0, 128: 4.0}[settings.get("batch-size")]
    return faster * (1.2 if "fused-optimizer" in settings else 1.0)


DOUBLED, AGAIN = (offer("batch-size", size, 30 / size, {"scale-lr": "sqrt"}) for size in (64, 128))


FUSED = offer("fused-optimizer", "fused", 0.1)


# -- experiments --------------------------------------------------------------------------------------------------
BUCKETS, BF16 = offer("bucketing", "tokens", 0.3), offer("precision", "bf16-mixed", 0.1)


KEPT_MEMORY, LARGER = offer("keep-memory", True, 0.05), offer("batch-size", 8, 0.2)


LAYOUT, EVERY = offer("channels-last", True, 0.4), offer("validate-every", 8, 0.4)


ALL_LIVE = ("precision", "fused-optimizer", "channels-last", "keep-memory", "num-workers", "cache-dataset")


EXACT = Wish("speed", frozenset(UNCHANGED))


def trials_of(world):
    return [settings for kind, settings in world.made if kind == "trial"]
