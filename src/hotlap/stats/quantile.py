"""Quantiles of a sequence, with linear interpolation between neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from hotlap.errors import FactError


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie: 0.5 is the median, 0.95 the p95."""
    return of_ordered(sorted(values), share)


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return of_ordered(sorted(values), 0.5)


def of_ordered(ordered: Sequence[float], share: float) -> float:
    """A quantile of values that are sorted already, so that several of them cost one sort."""
    if not ordered:
        raise FactError("a quantile of no values was asked for.")
    if not 0.0 <= share <= 1.0:
        raise FactError(f"a quantile lies between 0 and 1, not at {share}.")
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
