"""What a search is given beside the job: how long it may take, and whom it tells of its progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hotlap.facts.trial import Trial
from hotlap.facts.verdict import Verdict


@dataclass(frozen=True)
class Budget:
    """Seconds or trials, whichever is given."""

    seconds: float | None = None
    trials: int | None = None


@dataclass
class Said:
    """How a search tells of its progress."""

    trial: Callable[[Trial], None]
    verdict: Callable[[Verdict], None]
    note: Callable[[str], None]
