"""Runs of today against runs of another day, which cannot be run in turn: what the machine changed is told apart.

A regression is told only where both say so: the rates as they are, and the rates beside the machine's own pace. A job
that waits for its disk or its GPU does not follow that pace, and one that computes does; whichever it is, a verdict
that needs both is not the machine's fault. It is ruled out where one of them rules it out. The price: a regression that
hides behind a machine that became faster is not told, but the reason says so.
"""

from __future__ import annotations

from hotlap.facts.baseline import Baseline, Checked, Compared, Standing
from hotlap.facts.diagnosis import Interval
from hotlap.stats.compare import Ratio, ratio

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
