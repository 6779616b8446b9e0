"""How much faster, and whether that is enough to keep a setting."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hotlap.facts.baseline import Baseline, Checked, Compared, Standing
from hotlap.facts.diagnosis import Interval
from hotlap.facts.trial import Figures
from hotlap.facts.verdict import Gain, Ruling
from hotlap.stats.compare import Ratio, Scatter, ratio, repeated, trimmed

LEAST = 0.03  # a winner must beat the incumbent by this: less is not worth a setting more
BEHIND, ROUNDS, MOST_ROUNDS = 2, 4, 8
"""Of a duel: where the challenger is behind, as a rule, and where a gain seems to be worth it and is not sure yet."""
LOOKING = 0.99  # confidence while more trials may follow: who looks often is fooled more often
DONE = 0.95


def gain_of(
    before: Sequence[float], after: Sequence[float], scatter: Scatter | None, *, final: bool
) -> Gain | None:
    """None where nothing can be said yet: no scatter is known and a plan ran but once."""
    if not before or not after or (scatter is None and min(len(before), len(after)) < 2):
        return None
    found = ratio(before, after, confidence=DONE if final else LOOKING, scatter=scatter)
    return as_gain(found, len(before) + len(after))


def gain_of_rounds(ratios: Sequence[float], scatter: Scatter, *, final: bool) -> Gain:
    """Of ratios that were each measured side by side. When the last round is made and they are not sure, a few of them
    may have met a machine that changed its pace: those in the middle are asked as well."""
    confidence = DONE if final else LOOKING
    found = repeated(ratios, scatter, confidence)
    if len(ratios) >= MOST_ROUNDS and not found.decided:
        middle = trimmed(ratios, confidence)
        found = middle if middle.decided else found
    return as_gain(found, 2 * len(ratios))


def as_gain(found: Ratio, trials: int) -> Gain:
    return Gain(found.value - 1.0, Interval(found.low - 1.0, found.high - 1.0), trials)


def rule(gain: Gain | None, least: float = LEAST) -> Ruling:
    """Keep what is surely better, and by enough; drop what surely is not; else more trials must tell."""
    if gain is None:
        return Ruling.UNDECIDED
    if gain.interval.low > 0.0 and gain.value >= least:
        return Ruling.KEEP
    return Ruling.DROP if gain.interval.high < least else Ruling.UNDECIDED


def enough(rounds: int, gain: Gain | None, par: float = 0.0) -> bool:
    """Whether so many rounds have told what a duel can tell at a reasonable price. Who is behind `par` after two of
    them has lost: most settings bring nothing, and what they would take is what others need. Rounds beyond the usual
    number are looked at by the closer bounds to the end: they are made because of what was seen."""
    if gain is not None and gain.value < par:
        return rounds >= BEHIND
    return rounds >= (MOST_ROUNDS if gain is not None and gain.value >= LEAST else ROUNDS)


def rule_simpler(gain: Gain | None, tie: float = LEAST) -> Ruling:
    """Of a challenger that asks for less: the tie is his, so he only must not be worse by more than `tie`."""
    if gain is None:
        return Ruling.UNDECIDED
    if gain.interval.low > -tie:
        return Ruling.KEEP
    return Ruling.DROP if gain.interval.high < 0.0 else Ruling.UNDECIDED


def beside_blocks(gain: Gain | None, shown: Gain | None) -> Gain | None:
    """What runs have measured and what blocks of steps within one process have shown, by how closely each is known.
    Where they contradict each other, the runs are right: a setting may act otherwise when it stands from the start."""
    if gain is None or shown is None:
        return gain
    (here, error), (there, its_error) = _log(gain), _log(shown)
    if abs(here - there) > math.hypot(error, its_error):
        return gain
    weight = its_error**2 / (error**2 + its_error**2)
    both = math.exp(weight * here + (1 - weight) * there)
    spread = math.exp(error * its_error / math.hypot(error, its_error))
    return Gain(both - 1.0, Interval(both / spread - 1.0, both * spread - 1.0), gain.trials + shown.trials)


def all_of(gains: Sequence[Gain]) -> Gain:
    """Of settings that act one beside the other, as far as each is known by itself."""
    logs = [_log(each) for each in gains]
    product, spread = (
        math.exp(sum(log for log, _ in logs)),
        math.exp(math.hypot(*(error for _, error in logs))),
    )
    interval = Interval(product / spread - 1.0, product * spread - 1.0)
    return Gain(product - 1.0, interval, sum(each.trials for each in gains))


def _log(gain: Gain) -> tuple[float, float]:
    """The logarithm of the ratio, and half of its interval, which is never quite nothing."""
    low, high = math.log1p(gain.interval.low), math.log1p(gain.interval.high)
    return math.log1p(gain.value), max((high - low) / 2, 1e-9)


def rule_closely(gain: Gain | None) -> Ruling:
    """Of a gain that is to be shown: not decided until it is known closely."""
    if gain is None:
        return Ruling.UNDECIDED
    low, high = gain.interval.low, gain.interval.high
    return rule(gain) if Ratio(1.0 + gain.value, 1.0 + low, 1.0 + high).narrow else Ruling.UNDECIDED


def beats(gain: Gain | None) -> bool:
    """Whether a plan is better than the original script by more than the noise."""
    return gain is not None and gain.interval.low > 0.0


def break_even(before: Figures, after: Figures, compile_s: float | None = None) -> int | None:
    """Steps until the time for compiling is paid back; None where nothing is compiled or nothing is saved.

    `compile_s` is what it takes without a warm cache.
    """
    paid = (after.compile_s if compile_s is None else compile_s) - before.compile_s
    saved = before.step_ms - after.step_ms
    if before.samples_per_step and after.samples_per_step:  # a larger batch does more in a step
        saved = before.step_ms - after.step_ms * before.samples_per_step / after.samples_per_step
    return round(paid * 1e3 / saved) if paid > 0 and saved > 0 else None


# Runs of today against runs of another day, which cannot be run in turn: what the machine changed is told apart.
#
# A regression is told only where both say so: the rates as they are, and the rates beside the machine's own
# pace. A job that waits for its disk or its GPU does not follow that pace, and one that computes does;
# whichever it is, a verdict that needs both is not the machine's fault. It is ruled out where one of them
# rules it out. The price: a regression that hides behind a machine that became faster is not told, but the
# reason says so.


CONFIDENCE = 0.99  # as `hotlap compare`: a gate that cries wolf is switched off


def check(before: Baseline, after: Baseline, tolerance: float) -> Checked:
    """How today's runs stand to the baseline; `tolerance` is the share that they may be slower."""
    plain = ratio(before.rates, after.rates, confidence=CONFIDENCE)
    drift = beside = None
    if len(before.paces) == len(before.rates) and len(after.paces) == len(after.rates):
        drift = ratio(before.paces, after.paces, confidence=CONFIDENCE)
        beside = ratio(_beside(before), _beside(after), confidence=CONFIDENCE)
    standing, reason = _judged(plain, beside, tolerance)
    parts = [_told(each) if each else None for each in (drift, beside)]
    return Checked(before, after, tolerance, _told(plain), parts[0], parts[1], standing, reason)


def _beside(baseline: Baseline) -> list[float]:
    return [rate / pace for rate, pace in zip(baseline.rates, baseline.paces, strict=True)]


def _judged(plain: Ratio, beside: Ratio | None, tolerance: float) -> tuple[Standing, str]:
    ratios = [plain] if beside is None else [plain, beside]
    late = [_slower(each, tolerance) for each in ratios]
    if all(late):
        return Standing.SLOWER, "the job is slower, and the machine itself does not explain it"
    if late[0]:
        return Standing.NOT_DECIDED, "the rates are lower, but the machine itself is slower too"
    if any(late):
        return Standing.NOT_DECIDED, "the machine itself is faster than it was, and the job did not follow"
    if max(each.low for each in ratios) < 1.0 - tolerance:
        return Standing.NOT_DECIDED, "the runs scatter too much to rule out a regression beyond the tolerance"
    if all(each.low > 1.0 + tolerance for each in ratios):
        return Standing.FASTER, "save a new baseline, so that what was won is not lost unseen"
    return Standing.SAME, "a regression beyond the tolerance is ruled out"


def _slower(found: Ratio, tolerance: float) -> bool:
    """Surely slower, and by more than what is tolerated."""
    return found.high < 1.0 and found.value < 1.0 - tolerance


def _told(found: Ratio) -> Compared:
    return Compared(found.value, Interval(found.low, found.high))
