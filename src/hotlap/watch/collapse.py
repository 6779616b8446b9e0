"""Has a posterior collapsed? A verdict from a few figures of each look; constant memory, no torch.

A falling KL is neither needed nor enough: a KL that is flat near zero from the start never falls, and one that falls
from far above while a weight is warmed up is a model that learns. What counts is how much z still says about x (mutual
information and active units), and whether that is on the rise.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from hotlap.stats.robust import median, slope

ACTIVE_VARIANCE = 0.01
"""A unit whose posterior mean varies less than this over the data is inactive (Burda et al. 2016)."""
LITTLE_NATS = 0.1
"""Mutual information below this is a seventh of one bit: z says nothing of use, in however many dimensions."""
MUCH_NATS = 1.0
"""More than an encoder at its start, which maps at random, says by accident."""
FEW_UNITS = 0.02
"""Share of active units that noise alone may show in a wide latent."""
SUSPICIOUS, CERTAIN = 4, 8
"""Looks in a row with next to nothing in z and no rise, until it is called collapsing, and collapsed. A model that
starts slowly shows a rise within these."""
LOST = 0.4
"""Of the most mutual information that was ever seen: less than this, and still falling, is collapsing. A model that
is only compressed while its KL weight is warmed up keeps more of it."""
RISE = 1.25
"""Times: growth of KL or of mutual information over a streak of low looks that counts as a rise."""
UNUSED = 0.005
"""Of the reconstruction loss: a decoder that loses less than this by another row's z does not look at z."""
UNUSED_LOOKS = 10


class State(StrEnum):
    """What is said of a posterior."""

    HEALTHY = "healthy"
    COLLAPSING = "collapsing"
    COLLAPSED = "collapsed"


@dataclass(frozen=True)
class Verdict:
    """`since` is the step at which it began, `dimensions` those that hold nothing, `reason` one sentence."""

    state: State = State.HEALTHY
    since: int | None = None
    dimensions: tuple[int, ...] = ()
    reason: str = "nothing was seen yet"


@dataclass(frozen=True)
class Posterior:
    """One look. KL and mutual information in nats; `ceiling` is the most mutual information that so many rows can show.

    `gap` is how much the reconstruction loss grows when each row is decoded from the z of another, as a share of that
    loss; None where no decoder was given.
    """

    step: int
    rows: int
    kl: tuple[float, ...]
    variances: tuple[float, ...]
    mutual_information: float
    gap: float | None = None

    @property
    def total_kl(self) -> float:
        return math.fsum(self.kl)

    @property
    def active(self) -> int:
        return sum(each > ACTIVE_VARIANCE for each in self.variances)

    @property
    def inactive(self) -> tuple[int, ...]:
        return tuple(at for at, each in enumerate(self.variances) if not each > ACTIVE_VARIANCE)

    @property
    def ceiling(self) -> float:
        return math.log(self.rows)

    @property
    def low(self) -> bool:
        few = self.active <= FEW_UNITS * len(self.variances)
        return few and not self.mutual_information > LITTLE_NATS


@dataclass(frozen=True)
class _Look:
    """What is kept of a look: a few numbers, however wide the latent is."""

    step: int
    information: float
    kl: float
    spread: float
    gap: float | None


@dataclass
class Detector:
    """Fed with looks, oldest first; keeps the last `window` of them."""

    window: int = 50
    verdict: Verdict = field(default_factory=Verdict)
    _looks: deque[_Look] = field(default_factory=deque)
    _low: deque[_Look] = field(default_factory=deque)
    _low_since: int = 0
    _streak: int = 0
    _peak: float = 0.0

    def add(self, seen: Posterior) -> Verdict:
        """The verdict after one more look."""
        spread = max(seen.variances, default=0.0)
        look = _Look(seen.step, seen.mutual_information, seen.total_kl, spread, seen.gap)
        _push(self._looks, look, self.window)
        if seen.low:
            if not self._streak:
                self._low_since = seen.step
            self._streak += 1
            _push(self._low, look, self.window)
        else:
            self._streak = 0
            self._low.clear()
        self.verdict = self._judge(seen)
        self._peak = max(self._peak, self._level())
        return self.verdict

    def _level(self) -> float:
        """Of the last few looks: a single one is noisy."""
        return median([each.information for each in list(self._looks)[-3:]])

    def _judge(self, seen: Posterior) -> Verdict:
        if seen.low:
            return self._judge_low(seen)
        if self._falls():
            return self._told(State.COLLAPSING, seen, self._fall_began(), _fallen(self._peak, self._level()))
        if self._is_unused():
            reason = "the decoder reconstructs as well from the z of another row: it does not look at z"
            return self._told(State.COLLAPSING, seen, seen.step, reason)
        return Verdict(State.HEALTHY, None, seen.inactive, _described(seen))

    def _judge_low(self, seen: Posterior) -> Verdict:
        streak = self._streak
        rises = _rises(self._low)
        fallen = self._peak > MUCH_NATS and streak > 1  # all that z once said is gone
        if rises or (streak < SUSPICIOUS and not fallen and self.verdict.state is State.HEALTHY):
            reason = "z says little, and what it says grows" if rises else "too early to tell"
            return Verdict(State.HEALTHY, None, seen.inactive, f"{reason}: {_described(seen)}")
        state = State.COLLAPSED if streak >= CERTAIN else State.COLLAPSING
        return self._told(state, seen, self._low_since, _described(seen))

    def _told(self, state: State, seen: Posterior, since: int, reason: str) -> Verdict:
        """A collapse that goes on began when it was first told."""
        known = self.verdict.since if self.verdict.state is not State.HEALTHY else None
        return Verdict(state, since if known is None else min(known, since), seen.inactive, reason)

    def _falls(self) -> bool:
        """Most of what z said is gone, and it still becomes less."""
        recent = list(self._looks)[-max(SUSPICIOUS, self.window // 4) :]
        if len(recent) < SUSPICIOUS or self._level() > LOST * self._peak:
            return False
        trend = slope([each.step for each in recent], [each.information for each in recent])
        return trend * (recent[-1].step - recent[0].step) < -LITTLE_NATS

    def _fall_began(self) -> int:
        """The first look of the window below half of the peak."""
        return next((each.step for each in self._looks if each.information < self._peak / 2), 0)

    def _is_unused(self) -> bool:
        gaps = [each.gap for each in self._looks if each.gap is not None][-self.window :]
        if len(gaps) < UNUSED_LOOKS:
            return False
        mean = math.fsum(gaps) / len(gaps)
        error = math.sqrt(math.fsum((each - mean) ** 2 for each in gaps) / (len(gaps) - 1) / len(gaps))
        return mean + 2.0 * error < UNUSED


def _push(looks: deque[_Look], look: _Look, most: int) -> None:
    looks.append(look)
    if len(looks) > most:
        looks.popleft()


def _rises(looks: Sequence[_Look]) -> bool:
    """Whether what z says grows, in the second half of these looks over the first and in nearly all of them."""
    return any(
        _grows([getattr(each, name) for each in looks], least)
        for name, least in (("information", 0.02), ("kl", 0.001), ("spread", 0.0002))
    )


def _grows(values: list[float], least: float) -> bool:
    """`least` is what noise can do."""
    half = len(values) // 2
    if half < 2:
        return False
    early, late = median(values[:half]), median(values[-half:])
    if late < RISE * early or late - early < least:
        return False
    return slope(range(len(values)), values, 0.25) > 0


def _described(seen: Posterior) -> str:
    return (
        f"{seen.active} of {len(seen.variances)} units active, "
        f"mutual information {seen.mutual_information:.2f} of at most {seen.ceiling:.2f} nats, "
        f"KL {seen.total_kl:.3g} nats"
    )


def _fallen(peak: float, level: float) -> str:
    return f"mutual information fell from {peak:.2f} to {level:.2f} nats and still falls"
