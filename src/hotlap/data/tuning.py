"""Chooses how a loader runs, from what its batches cost and how long its consumer waits.

A strategy is a generator: it asks for a stretch of batches under a setting, is sent what was seen, and goes on.
Every decision is told in a sentence with the figures that led to it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Generator
from dataclasses import dataclass, field, replace

from hotlap.data.budget import Budget
from hotlap.data.loader_fetch import Fetched
from hotlap.units import duration, rate, share, size

# What is tried and what was seen: settings, windows of batches, and the tuner that runs a strategy over them.


IN_PROCESS, THREADS, PROCESSES = "in-process", "threads", "processes"
BUSY = 0.8  # workers that are busier than this are too few
STALL = 0.2  # of the time from batch to batch: waiting for so long counts as a stall
UNEVEN = 4.0  # times the mean: a batch that takes so long is one of its own kind
MOSTLY = 0.5  # of the batches: stalls that are rarer come from batches that cost unevenly
FIRST_LINES, LAST_LINES = 4, 16  # of a story that are kept
LEAST_S = 0.25  # a shorter window says little, unless it holds ...
MANY = 64  # ... so many batches


@dataclass(frozen=True)
class Setting:
    """A way to run, with how many workers, and how many batches are under way at most."""

    way: str
    workers: int = 0
    ahead: int = 1

    def __str__(self) -> str:
        if self.way == IN_PROCESS:
            return "in the consumer's own thread"
        kind = "thread" if self.way == THREADS else "worker process"
        return f"{self.workers} {kind}{'' if self.workers == 1 else 'es' if kind != 'thread' else 's'}"


@dataclass(frozen=True)
class SettingTrial:
    """A setting and how many batches of it should be seen; the first `settle` are left out.

    Every second batch is held back for `hold_s`, to see whether that delays the consumer at all. `brief`: these
    batches are enough, however little time they take.
    """

    setting: Setting
    batches: int
    settle: int = 1
    hold_s: float = 0.0
    brief: bool = False


Turn = tuple[float, float]  # how long the consumer waited for a batch, and what it then took for it


@dataclass
class Window:
    """What was seen during a trial, summed over its batches."""

    batches: int = 0
    seconds: float = 0.0
    wait_s: float = 0.0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    size: int = 0
    workers: int = 1
    stalls: int = 0
    longest_s: float = 0.0  # of the batches, to fetch
    free: list[Turn] = field(default_factory=list)
    held: list[Turn] = field(default_factory=list)

    @property
    def gives_way(self) -> float:
        """How much less the consumer takes for a batch that was held back: 1 is all of the delay, 0 nothing of it.

        Medians of batches in turn: neither a slow batch nor a machine that changes its speed decides.
        """
        if not self.free or not self.held:
            return 0.0
        delay, less = (
            statistics.median(one) - statistics.median(two)
            for one, two in zip(zip(*self.held, strict=True), zip(*self.free, strict=True), strict=True)
        )
        return -less / delay if delay > 0 else 0.0

    @property
    def uneven(self) -> bool:
        return self.longest_s > UNEVEN * self.wall

    @property
    def scarce(self) -> bool:
        """Whether batches come too slowly: the consumer waits for most of them, or workers are always at it."""
        return self.stalls > MOSTLY * self.batches or self.busy > BUSY

    @property
    def rate(self) -> float:
        return self.batches / self.seconds if self.seconds else 0.0

    @property
    def lap(self) -> float:
        return self.seconds / self.batches if self.batches else 0.0

    @property
    def wall(self) -> float:
        return self.wall_s / self.batches if self.batches else 0.0

    @property
    def gap(self) -> float:
        """What the consumer takes for a batch besides waiting for it."""
        return max(0.0, self.seconds - self.wait_s) / self.batches if self.batches else 0.0

    @property
    def waiting(self) -> float:
        return self.wait_s / self.seconds if self.seconds else 0.0

    @property
    def busy(self) -> float:
        return self.wall_s / (self.seconds * max(1, self.workers)) if self.seconds else 0.0

    @property
    def cpu_share(self) -> float:
        return min(1.0, self.cpu_s / self.wall_s) if self.wall_s else 1.0


Strategy = Generator[SettingTrial, Window, None]


class Tuner:
    """Runs a strategy: adds up what is seen of its trials, and has it say what comes next."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._trial = next(strategy)
        self._settled = 0
        self._window = Window()
        self._before: tuple[bool, float] | None = None  # was the last batch held back, and the wait for it
        self.last: Window | None = None  # the last one that was full

    @property
    def setting(self) -> Setting:
        return self._trial.setting

    @property
    def hold_s(self) -> float:
        return self._trial.hold_s if self._window.batches % 2 else 0.0

    def note(self, setting: Setting, lap_s: float, wait_s: float, fetched: Fetched) -> None:
        """A batch came `lap_s` after the one before, `wait_s` of it the consumer waited."""
        if setting != self.setting:
            return  # asked for under the setting before
        if self._settled < self._trial.settle:
            self._settled += 1
            return
        window = self._window
        if self._before is not None:
            held, wait_before_s = self._before
            (window.held if held else window.free).append((wait_before_s, lap_s - wait_s))
        self._before = (self.hold_s > 0, wait_s) if self._trial.hold_s else None
        window.batches += 1
        window.seconds += lap_s
        window.wait_s += wait_s
        window.stalls += wait_s > STALL * lap_s
        window.longest_s = max(window.longest_s, fetched.wall_ns / 1e9)
        window.wall_s += fetched.wall_ns / 1e9
        window.cpu_s += fetched.cpu_ns / 1e9
        window.size = max(window.size, fetched.size)
        enough = self._trial.brief or window.seconds >= LEAST_S or window.batches >= MANY
        if window.batches >= self._trial.batches and enough:
            window.workers = setting.workers
            self._go_on(window)

    def give_up(self) -> None:
        """The setting of the trial cannot be had."""
        self._go_on(Window())

    def _go_on(self, window: Window) -> None:
        self.last = window if window.batches else self.last
        self._trial = self._strategy.send(window)
        self._settled, self._window, self._before = 0, Window(), None


class Story:
    """Sentences, the latest figures last; the same thing is not told twice in a row. A long one loses its middle."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def tell(self, sentence: str) -> None:
        if not self.lines or self.lines[-1] != sentence:
            self.lines.append(sentence)
            del self.lines[FIRST_LINES:-LAST_LINES]


WORTH = 1.1  # workers must promise this much before they are tried, and must then be measured to bring it
BETTER = 1.05  # what more workers must be measured to bring
GIL_FREE = 1.3  # two threads that are so much faster than one do let go of the GIL
WAITS = 0.03  # share of its time that a consumer may wait without anything being done about it
CHEAP = 0.25  # batches that cost so much less than at first (a cache has filled) are looked at anew
HAND_OVER_S = 2e-4  # of a batch from a worker, about
MOST = {THREADS: 32, PROCESSES: 16}
DEEPEST = 64  # batches ahead
LOOK_AGAIN = 32  # batches until it is looked again whether workers are worth a try
FIRST_REST, LONGEST_REST = 4096, 16384  # batches until they are tried again, after they have not paid
OTHER = 2.0  # batches that cost so many times more or less are others than before ...
CHANGES = 3  # ... and if they are in so many windows in a row, workers are tried at once
LONGEST_PAUSE = 256  # windows until more workers are tried again
HELD = 0.4  # of the consumer's time: batches are held back so long to see whether it notices
SLACK = 0.05  # of the lap: a consumer that takes less has no time in which a delay could hide
GIVES_WAY = 0.5  # of a delay: if so much of it is made up for, it is hidden
HOLDS = 32  # batches, every second of them held back
REGRETS = 5  # windows in a row, before it is believed: batches that cost unevenly are cheap for a while too


@dataclass
class TuningLimits:
    """What may be chosen. `no_threads`, `no_processes`: why not, or ""; found out as it goes."""

    budget: Budget
    no_threads: str = ""
    no_processes: str = ""
    workers: int | None = None  # fixed by the user
    ahead: int | None = None


def chosen_by_user(setting: Setting, limits: TuningLimits, story: Story) -> Strategy:
    """The number of workers is given; only how far they run ahead is tuned, unless that is given too."""
    story.tell(f"Batches are fetched by {setting}, as asked for.")
    while True:
        seen = yield SettingTrial(setting, max(16, setting.ahead))
        if limits.ahead is None and setting.way != IN_PROCESS:
            setting = deepened(setting, seen, limits, story)


def measured(limits: TuningLimits, story: Story) -> Strategy:
    """Nothing is given: look at the items first, then take the way that suits them, then as many as pay."""
    look, rest, was_hidden = (yield SettingTrial(Setting(IN_PROCESS), 4)), FIRST_REST, False
    while True:
        story.tell(
            f"A batch takes {duration(look.wall)} to fetch, {share(look.cpu_share)} of that time it needs a core, and "
            f"the consumer takes {duration(look.gap)} for it."
        )
        if not _is_worth_it(look, limits, story):
            look = yield SettingTrial(Setting(IN_PROCESS), LOOK_AGAIN)
            continue
        hidden = yield from _is_hidden(look, story)
        if was_hidden and not hidden:  # one look may err, and to try workers costs the consumer time
            look = yield SettingTrial(Setting(IN_PROCESS), HOLDS)
            hidden = yield from _is_hidden(look, story)
        was_hidden = hidden
        if not hidden:
            for way in (THREADS, PROCESSES):
                if (yield from _suits(way, look, limits, story)):
                    yield from _adjusted(_start(way, look, limits), look, limits, story)
        look = yield from _rested(look, rest)
        rest = min(LONGEST_REST, 2 * rest)


def _rested(before: Window, batches: int) -> Generator[SettingTrial, Window, Window]:
    """Go on in the consumer's own thread; earlier than planned only if batches or consumer are not what they were."""
    look, changed, passed = before, 0, 0
    while passed < batches and changed < CHANGES:
        look = yield SettingTrial(Setting(IN_PROCESS), LOOK_AGAIN)
        changed = changed + 1 if _is_other(look, before) else 0
        passed += look.batches
    return look


def _is_other(look: Window, before: Window) -> bool:
    dearer_or_cheaper = not 1 / OTHER < look.wall / max(before.wall, 1e-9) < OTHER
    return dearer_or_cheaper or look.gap > OTHER * max(before.gap, look.wall)


def _is_worth_it(look: Window, limits: TuningLimits, story: Story) -> bool:
    gain = (look.wall + look.gap) / max(look.gap, look.wall / _most(PROCESSES, look, limits), HAND_OVER_S)
    if limits.no_threads and limits.no_processes:
        reason = f"{limits.no_processes}, and {limits.no_threads}"
    elif gain < WORTH:
        reason = f"workers could bring {share(max(0.0, gain - 1))} at the most"
    else:
        return True
    story.tell(f"Batches are fetched in the consumer's own thread: {reason}.")
    return False


def _is_hidden(look: Window, story: Story) -> Generator[SettingTrial, Window, bool]:
    """A device that has work queued up does not notice that the host fetches a batch: then workers bring nothing."""
    if look.gap < SLACK * look.lap:
        return False
    hold = HELD * look.gap
    held = yield SettingTrial(Setting(IN_PROCESS), HOLDS, hold_s=hold)
    if held.gives_way < GIVES_WAY:
        return False
    story.tell(
        f"Batches are fetched in the consumer's own thread: when every second one was held back by {duration(hold)}, "
        f"the consumer made up for {share(min(1.0, held.gives_way))} of the delay, so fetching is hidden already."
    )
    return True


def _suits(
    way: str, look: Window, limits: TuningLimits, story: Story
) -> Generator[SettingTrial, Window, bool]:
    refused = limits.no_threads if way == THREADS else limits.no_processes
    if refused:
        story.tell(f"{'Threads' if way == THREADS else 'Worker processes'} are left out: {refused}.")
        return False
    return way == PROCESSES or (yield from _threads_help(look, story))


def _threads_help(look: Window, story: Story) -> Generator[SettingTrial, Window, bool]:
    duo = yield SettingTrial(Setting(THREADS, 2, 4), 16, brief=not look.uneven)
    if not duo.batches:
        return False  # taken back meanwhile, and told
    faster = 2 * look.wall / duo.wall if duo.wall else 0.0
    if look.cpu_share > 0.5:
        # a thread that waits for the GIL needs no core: true also when the machine got quicker
        faster = min(faster, 2 * duo.cpu_share / look.cpu_share)
    if duo.scarce and duo.waiting > WAITS:
        # nobody but the threads held batches up; to wait for the GIL before a batch begins is in no batch's time
        faster = min(faster, duo.rate * look.wall)
    verdict = "they let go of the GIL" if faster >= GIL_FREE else "they hold the GIL"
    story.tell(f"Two threads fetch {faster:.2f}x as much as one: items are such that {verdict}.")
    return faster >= GIL_FREE


def _most(way: str, look: Window, limits: TuningLimits) -> int:
    """As many as the cores can feed: more than cores where items wait for something else than the CPU."""
    fed = round(limits.budget.cores / max(look.cpu_share, 0.01))
    room = limits.budget.ram // max(1, 2 * look.size)
    return max(1, min(fed, MOST[way], room))


def _start(way: str, look: Window, limits: TuningLimits) -> Setting:
    most = _most(way, look, limits)
    needed = math.ceil(1.25 * look.wall / look.gap) if look.gap > look.wall / most else most
    least = 2 if look.uneven else 1  # so that a long batch does not hold up the others
    return _sized(way, min(most, max(least, needed)), look, limits)


def _sized(way: str, workers: int, look: Window, limits: TuningLimits) -> Setting:
    ahead = max(workers + 2, min(2 * workers, workers + 4))
    if look.uneven:  # as many as are consumed while the longest is fetched
        ahead = max(ahead, math.ceil(1.5 * look.longest_s / max(look.gap, look.wall / workers)))
    return Setting(way, workers, max(limits.ahead or _within(ahead, look, limits), workers))


def _within(ahead: int, look: Window, limits: TuningLimits) -> int:
    return max(1, min(ahead, DEEPEST, limits.budget.ram // max(1, look.size)))


def _adjusted(setting: Setting, look: Window, limits: TuningLimits, story: Story) -> Strategy:
    """Settle on a number of workers; goes on for good unless they turn out not to pay, or batches get cheap."""
    seen = yield SettingTrial(setting, max(MANY if look.uneven else 8, setting.workers), setting.workers)
    if not seen.batches or seen.rate < look.rate * WORTH:
        story.tell(
            f"{str(setting).capitalize()} gave {rate(seen.rate)} batches/s, the consumer's own thread "
            f"{rate(look.rate)}: not kept."
        )
        return
    story.tell(
        f"{str(setting).capitalize()}: {rate(seen.rate)} batches/s instead of {rate(look.rate)} without; "
        f"{_why(look, limits)}; {setting.ahead} batches ahead ({size(setting.ahead * look.size)})."
    )
    pause, rest, regretted = 1, 0, 0
    while True:
        regret = _regret(seen, look)
        regretted = regretted + 1 if regret else 0
        if regretted >= REGRETS:
            story.tell(regret)
            return
        deeper = deepened(setting, seen, limits, story) if limits.ahead is None else setting
        more, rest = _more(setting, look, limits), rest - 1
        if seen.waiting > WAITS and seen.scarce and more != setting and rest < 0:
            setting, seen, worked = yield from _tried(more, setting, seen, story)
            rest = pause = 1 if worked else min(LONGEST_PAUSE, 2 * pause)
        setting = replace(setting, ahead=max(setting.ahead, deeper.ahead))
        seen = yield SettingTrial(setting, max(16, setting.workers), 0)


def _regret(seen: Window, look: Window) -> str:
    """Why workers should not be kept after all; "" where they should."""
    if seen.wall < look.wall * CHEAP:
        return f"A batch takes only {duration(seen.wall)} by now."
    if seen.rate < look.rate and seen.waiting > WAITS:
        return f"Workers give {rate(seen.rate)} batches/s by now, the consumer's own thread gave {rate(look.rate)}."
    return ""


def _why(look: Window, limits: TuningLimits) -> str:
    if look.cpu_share > 0.7:
        return f"items need the CPU and {limits.budget.cores} cores may be used"
    return f"items wait {share(1 - look.cpu_share)} of their time, so more than {limits.budget.cores} pay"


def _more(setting: Setting, look: Window, limits: TuningLimits) -> Setting:
    most = _most(setting.way, look, limits)
    if look.cpu_share < 0.7:  # what was seen without contention says little: as long as it is measured to pay
        most = min(MOST[setting.way], limits.budget.ram // max(1, 2 * look.size))
    workers = min(most, max(setting.workers + 1, setting.workers * 3 // 2))
    grown = _sized(setting.way, max(workers, setting.workers), look, limits)
    return replace(grown, ahead=max(grown.ahead, setting.ahead)) if workers > setting.workers else setting


def _tried(
    more: Setting, setting: Setting, seen: Window, story: Story
) -> Generator[SettingTrial, Window, tuple[Setting, Window, bool]]:
    then = yield SettingTrial(more, max(16, more.workers), more.workers)
    worked = then.rate > seen.rate * BETTER
    kept = "kept" if worked else "not kept"
    story.tell(
        f"The consumer waited {share(seen.waiting)} of its time; {more} instead of {setting.workers}: "
        f"{rate(then.rate)} batches/s instead of {rate(seen.rate)}, {kept}."
    )
    return (more, then, True) if worked else (setting, seen, False)


def deepened(setting: Setting, seen: Window, limits: TuningLimits, story: Story) -> Setting:
    """Where the consumer waits although workers have time, batches cost unevenly: run further ahead."""
    if seen.waiting <= WAITS or seen.scarce or not seen.stalls:
        return setting
    ahead = _within(2 * setting.ahead, seen, limits)
    if ahead > setting.ahead:
        story.tell(
            f"The consumer waited {share(seen.waiting)} of its time, all of it at {seen.stalls} of {seen.batches} "
            f"batches, and workers were busy only {share(seen.busy)}: batches cost unevenly, so {ahead} are fetched "
            f"ahead instead of {setting.ahead}."
        )
        return replace(setting, ahead=ahead)
    return setting
