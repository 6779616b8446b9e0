"""What is tried and what was seen: settings, windows of batches, and the tuner that runs a strategy over them."""

from __future__ import annotations

import statistics
from collections.abc import Generator
from dataclasses import dataclass, field

from hotlap.data.loader_fetch import Fetched

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
class Trial:
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


Strategy = Generator[Trial, Window, None]


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
