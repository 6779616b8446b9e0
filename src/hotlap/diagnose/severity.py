"""How much a finding matters. Every threshold on a share of the step is defined here, and only here.

A share means the same for steps of a millisecond and of a minute. Time on the critical path is the most that could be
saved, so it takes more of it than of a measured saving to be loud: healthy jobs wait a little everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hotlap.facts.diagnosis import Basis, Cause, Finding, Fix, Severity
from hotlap.facts.experiment import Experiment, Experiments, ExperimentState
from hotlap.facts.timeline import SourceLine, Stage
from hotlap.ports.knob import Knob, Numerics
from hotlap.ports.rule import Rule, Sight

Evidence = Mapping[str, float | str | None]

CRITICAL_FROM = {Basis.EXPERIMENT: 0.30, Basis.EXPOSED: 0.40}
WARNING_FROM = {Basis.EXPERIMENT: 0.10, Basis.EXPOSED: 0.20}
NOTE_FROM = 0.02  # below this, a measurement of 200 steps cannot tell it from noise

LOUDNESS = {Severity.NOTE: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}


def severity_of(share: float, basis: Basis = Basis.EXPOSED) -> Severity:
    """The severity of a share of the step."""
    if share >= CRITICAL_FROM[basis]:
        return Severity.CRITICAL
    return Severity.WARNING if share >= WARNING_FROM[basis] else Severity.NOTE


def louder(one: Severity, other: Severity) -> Severity:
    return max(one, other, key=lambda each: LOUDNESS[each])


def quieter(one: Severity, other: Severity) -> Severity:
    return min(one, other, key=lambda each: LOUDNESS[each])


def finding(
    cause: Cause,
    share: float,
    evidence: Evidence,
    where: SourceLine | None = None,
    at_most: Severity = Severity.CRITICAL,
) -> Finding | None:
    """A finding if its exposed time is worth reporting. Evidence that is None was not measured and is left out.

    `at_most` limits a cause whose exposed time does not recur, or is not all to be saved.
    """
    if share < NOTE_FROM:
        return None
    severity = quieter(severity_of(share), at_most)
    seen = {key: value for key, value in evidence.items() if value is not None}
    return Finding(cause, severity, min(1.0, share), seen, where)


# What the experiments of a run say about a hypothesis or about exposed time.


OF_INPUT = frozenset({Cause.INPUT_STARVED, Cause.ITEM_CPU_BOUND, Cause.ITEM_IO_BOUND, Cause.COLLATE_BOUND})
"""Exposed time that free input would save: no change of the input saves more, and waiting may cost less than the input
does, as workers take cores from the training."""
HYPOTHESES_OF_INPUT = frozenset({Cause.WORKERS_TOO_FEW, Cause.PREFETCH_SHALLOW, Cause.REPEATED_WORK})


@dataclass(frozen=True)
class Weighed:
    """A finding with what the best experiment on its cause saved, the lower end of that saving, how far that experiment
    changes the numbers (0: not at all), and the share of the step that it attacks."""

    finding: Finding
    saved: float = 0.0
    least: float = 0.0
    changes: int = 0
    attacked: float = 1.0

    @property
    def weight(self) -> float:
        return max(self.finding.share, self.saved)


def tried_for(rule: Rule, sight: Sight, knobs: Iterable[Knob]) -> list[Experiment]:
    """The experiments that could show the rule's cause."""
    relieving = [knob.id for knob in knobs if rule.cause in knob.relieves]
    return [each for each in sight.experiments.of(*relieving) if rule.confirmed_by(each, sight)]


def best_won(tried: Iterable[Experiment]) -> Experiment | None:
    """The one that saved most; of equals the one whose interval says so with more certainty."""
    won = [each for each in tried if each.state is ExperimentState.FASTER and each.saved > 0]
    return max(won, key=lambda each: (each.saved, _least(each)), default=None)


def weighed(found: Finding, rule: Rule, tried: Sequence[Experiment], sight: Sight) -> Weighed | None:
    """The finding with its experiments; None where a hypothesis did not win, or where free input saves nothing."""
    best = best_won(tried)
    saved = min(best.saved, _most(found.cause, sight.experiments)) if best else 0.0
    attacked = found.share
    if rule.hypothesis:
        if best is None:
            return None
        severity = severity_of(saved, Basis.EXPERIMENT)
        found = replace(found, share=saved, severity=severity, basis=Basis.EXPERIMENT)
    else:
        found = _bounded(_raised(found, sight), sight.experiments)
        if best is not None:
            severity = louder(found.severity, severity_of(saved, Basis.EXPERIMENT))
            found = replace(found, severity=severity)
        elif found.cause in OF_INPUT and found.share < NOTE_FROM:
            return None
    found = replace(found, fixes=fixes_of(tried))
    if best is None:
        return Weighed(found)
    return Weighed(found, saved, min(saved, _least(best)), _changes(best), attacked)


def fixes_of(tried: Iterable[Experiment]) -> tuple[Fix, ...]:
    """The settings that won, the largest gain first: what may as well be noise is no advice."""
    won = sorted(
        (each for each in tried if each.state is ExperimentState.FASTER), key=lambda each: -(each.gain or 0.0)
    )
    return tuple(
        Fix(each.knob, each.setting, interval=each.interval, measured_gain=each.gain) for each in won
    )


def free_input_saves(experiments: Experiments) -> float | None:
    """The most that any change of the input can save, as a share of the step; None where it was not measured."""
    free = experiments.free_input
    if free is None or free.gain is None:
        return None
    gain = max(0.0, free.interval.high if free.interval else free.gain)
    return 1.0 - 1.0 / (1.0 + gain)


def _most(cause: Cause, experiments: Experiments) -> float:
    """What can be saved at most: an experiment on input that shows more than free input does is noise."""
    most = free_input_saves(experiments) if cause in OF_INPUT | HYPOTHESES_OF_INPUT else None
    return 1.0 if most is None else most


def _bounded(found: Finding, experiments: Experiments) -> Finding:
    most = _most(found.cause, experiments)
    if most >= found.share:
        return found
    return replace(found, share=most, severity=quieter(found.severity, severity_of(most)))


def _raised(found: Finding, sight: Sight) -> Finding:
    """Its part of the wait for data is also its part of what free input was sure to save."""
    free, data = sight.experiments.free_input, sight.summary.share(Stage.DATA)
    if found.cause not in OF_INPUT or free is None or free.state is not ExperimentState.FASTER or data <= 0:
        return found
    share = _least(free) * min(1.0, found.share / data)
    if share <= found.share:
        return found
    held_down = found.severity is not severity_of(found.share)
    return replace(found, share=share, severity=found.severity if held_down else severity_of(share))


def _changes(experiment: Experiment) -> int:
    known = [each.value for each in Numerics]
    return known.index(experiment.numerics) if experiment.numerics in known else len(known)


def _least(experiment: Experiment) -> float:
    low = experiment.interval.low if experiment.interval else 0.0
    return 1.0 - 1.0 / (1.0 + low) if low > 0 else 0.0
