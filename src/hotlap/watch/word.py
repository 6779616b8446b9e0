"""What a monitor says: one word, how grave it is, since when, and the figures it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Gravity(StrEnum):
    """How grave: nothing to do, look at it, act."""

    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True)
class Word:
    """`state` is a word of the monitor's own, such as `spiked`; `since` is the step at which it began."""

    state: str
    gravity: Gravity = Gravity.OK
    since: int | None = None
    figures: Mapping[str, float | str | None] = field(default_factory=dict)
    series: Sequence[tuple[float, float]] = ()
