"""Starting plans from the facts of a host, and of the job where a profile of it is stored.

A preset says only what its facts carry: every line has its reason, and what changes the numbers is left out
unless it is allowed by name. The host's rules are folklore made careful; a line that a profile's diagnosis
asks for comes with the gain that it predicts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hotlap.facts.diagnosis import Diagnosis, Severity
from hotlap.facts.host import Host
from hotlap.facts.plan import Plan
from hotlap.facts.timeline import Timeline
from hotlap.ports.knob import Numerics
from hotlap.propose import compute, feeding
from hotlap.propose.ground import Ground, Line
from hotlap.units import share

_PAYS = 0.03
"""A predicted gain below this is within what a busy machine makes of it: not a line of a preset."""


@dataclass(frozen=True)
class Proposal:
    """A preset's plan, and the lines that it would have with more allowed: knob to numerics."""

    plan: Plan
    left_out: Mapping[str, Numerics]


def balanced(ground: Ground) -> Iterator[Line]:
    """Saves what costs nothing: neither memory to speak of, nor a change of the schedule."""
    yield from feeding.workers(ground)
    yield from feeding.transfer(ground)
    yield from compute.free_of_cost(ground)
    yield from compute.precision(ground)
    yield from compute.fused(ground)
    yield from _diagnosed(ground)


def speed(ground: Ground) -> Iterator[Line]:
    """Also what takes memory, or minutes of compiling, to save time later."""
    yield from feeding.workers(ground, generous=True)
    yield from feeding.transfer(ground)
    yield from compute.free_of_cost(ground)
    yield from compute.precision(ground)
    yield from compute.fused(ground)
    yield from compute.compiled(ground)
    yield from compute.layout(ground)
    yield from _diagnosed(ground)


def memory(ground: Ground) -> Iterator[Line]:
    """Saves memory first, at the price of some time."""
    yield from feeding.workers(ground, spare=True)
    yield from compute.free_of_cost(ground)
    yield from compute.precision(ground)
    yield from compute.recomputed(ground)


def debug(ground: Ground) -> Iterator[Line]:
    """For finding a mistake: everything in one process, often told."""
    yield "num-workers", 0, "a fault in an item shows the script's own stack, and breakpoints work"
    if ground.frameworks:
        yield "log-every", 1, "every step is told"


PRESETS: Mapping[str, Callable[[Ground], Iterator[Line]]] = {
    "balanced": balanced,
    "speed": speed,
    "memory": memory,
    "debug": debug,
}


def propose(
    preset: str,
    host: Host,
    numerics: Mapping[str, Numerics],
    allowed: Collection[Numerics] = (),
    timeline: Timeline | None = None,
    diagnosis: Diagnosis | None = None,
) -> Proposal:
    """The preset on this ground. `numerics` are the knobs there are, by id; the later line on a knob counts."""
    settings: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    left_out: dict[str, Numerics] = {}
    ground = Ground(host, timeline, diagnosis)
    for knob, setting, reason in PRESETS[preset](ground):
        here = Numerics.STATISTICAL if knob == "num-workers" and ground.draws else numerics.get(knob)
        if here is None:
            continue
        if here is Numerics.BITWISE or here in allowed:
            settings[knob], reasons[knob] = setting, reason
        else:
            left_out[knob] = here
    return Proposal(Plan(settings, None, reasons), left_out)


def _diagnosed(ground: Ground) -> Iterator[Line]:
    """The best fix of each finding: what was seen of the job outweighs what its host suggests."""
    taken: set[str] = set()
    for finding in ground.diagnosis.findings if ground.diagnosis else ():
        if finding.severity is Severity.NOTE or not finding.fixes:
            continue
        fix = finding.fixes[0]
        pays = fix.predicted_gain is not None and fix.predicted_gain >= _PAYS
        if pays and fix.knob not in taken:
            taken.add(fix.knob)
            gain = f"{share(fix.predicted_gain or 0.0)} more throughput predicted"
            yield fix.knob, fix.setting, f"the profile found {finding.cause}: {gain}"
