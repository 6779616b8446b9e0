"""What to try next: settings that relieve the present bottleneck, by predicted gain, the simpler one first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hotlap.facts.diagnosis import Diagnosis, Interval, Severity
from hotlap.facts.host import Host
from hotlap.facts.plan import Plan
from hotlap.facts.timeline import Timeline
from hotlap.ports.knob import Knob, Numerics
from hotlap.ports.values import NotAllowedError

WORTH = 0.03  # of the step: a knob that could save less at most is not tried
UNPROMISING = 0.01  # predicted gain: below this a trial costs more than it may bring
_FOR_MEMORY = frozenset({"grad-checkpointing", "precision", "accumulate", "batch-size", "set-to-none"})
_CHANGES_BATCH = frozenset({"batch-size"})


@dataclass(frozen=True)
class Candidate:
    """A setting to try, and what was predicted of it; None where only the most it could save is known."""

    knob: str
    setting: Any
    predicted: float | None
    interval: Interval | None
    ceiling: float


@dataclass(frozen=True)
class Wish:
    """What the user wants of a search."""

    goal: str = "speed"
    allowed: frozenset[Numerics] = frozenset({Numerics.BITWISE})
    keep_batch: bool = False
    memory_limit: int | None = None


def candidates(
    diagnosis: Diagnosis,
    host: Host,
    timeline: Timeline,
    knobs: Mapping[str, Knob],
    plan: Plan,
    wish: Wish,
    tried: Collection[tuple[str, str]],
) -> list[Candidate]:
    """Predicted ones first, then what the knobs themselves offer on this host; nothing that was tried or is set."""
    offered = [*_from_fixes(diagnosis, knobs), *_from_knobs(host, timeline, knobs)]
    chosen: dict[tuple[str, str], Candidate] = {}
    for each in offered:
        key = (each.knob, str(each.setting))
        if key in chosen or key in tried or plan.settings.get(each.knob) == each.setting:
            continue
        if _wanted(each, knobs[each.knob], wish):
            chosen[key] = each
    return sorted(
        chosen.values(),
        key=lambda each: -(each.predicted if each.predicted is not None else 0.5 * each.ceiling),
    )


def _from_fixes(diagnosis: Diagnosis, knobs: Mapping[str, Knob]) -> Iterable[Candidate]:
    for finding in diagnosis.findings:
        for fix in finding.fixes:
            knob = knobs.get(fix.knob)
            if knob is None or (finding.severity is Severity.NOTE and (fix.predicted_gain or 0.0) < WORTH):
                continue
            try:
                setting = knob.values.read(fix.setting)
            except NotAllowedError:
                continue  # a rule may name a value that this knob does not take
            if fix.predicted_gain is None or fix.predicted_gain >= UNPROMISING:
                yield Candidate(fix.knob, setting, fix.predicted_gain, fix.interval, finding.share)


def _from_knobs(host: Host, timeline: Timeline, knobs: Mapping[str, Knob]) -> Iterable[Candidate]:
    for knob in knobs.values():
        most = knob.ceiling(timeline, host)
        if most >= WORTH:
            for setting in knob.settings(host, timeline):
                yield Candidate(knob.id, setting, None, None, most)


def _wanted(candidate: Candidate, knob: Knob, wish: Wish) -> bool:
    if knob.numerics not in wish.allowed or (wish.keep_batch and candidate.knob in _CHANGES_BATCH):
        return False
    return wish.goal != "memory" or candidate.knob in _FOR_MEMORY
