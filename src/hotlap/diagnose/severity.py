"""How much a finding matters. Every threshold on a share of the step stands here, and only here.

A share is what acting on the cause could take off a steady step, so it means the same for steps of a
millisecond and of a minute.
"""

from __future__ import annotations

from collections.abc import Mapping

from hotlap.facts.diagnosis import Cause, Finding, Severity
from hotlap.facts.timeline import Place

Evidence = Mapping[str, float | str | None]

CRITICAL_FROM = 0.30  # the run could be 1.4 times as fast: nothing else is worth doing first
WARNING_FROM = 0.10  # 1.1 times as fast: what a short comparison on a shared machine can still prove
NOTE_FROM = 0.02  # below this, a measurement of 200 steps cannot tell it from noise

_FLOOR = {Severity.CRITICAL: CRITICAL_FROM, Severity.WARNING: WARNING_FROM, Severity.NOTE: 0.0}
_ROOF = {Severity.CRITICAL: 1.0, Severity.WARNING: CRITICAL_FROM, Severity.NOTE: WARNING_FROM}


def severity_of(share: float) -> Severity:
    """The severity of a share of the step."""
    if share >= CRITICAL_FROM:
        return Severity.CRITICAL
    return Severity.WARNING if share >= WARNING_FROM else Severity.NOTE


def finding(
    cause: Cause,
    share: float,
    evidence: Evidence,
    where: Place | None = None,
    at_most: Severity = Severity.CRITICAL,
) -> Finding | None:
    """A finding if its share is worth a word. Evidence that is None was not measured and is left out.

    `at_most` holds a cause down whose share is an estimate rather than a measurement.
    """
    if share < NOTE_FROM:
        return None
    severity = severity_of(share)
    if _FLOOR[severity] > _FLOOR[at_most]:
        severity = at_most
    seen = {key: value for key, value in evidence.items() if value is not None}
    return Finding(cause, severity, min(1.0, share), seen, where)


def weight(found: Finding) -> float:
    """What findings are ranked by: the share, held within the bounds of the severity.

    So a cause that costs no time, such as growing memory, ranks with the shares of its severity, and a note
    never comes before a warning.
    """
    floor, roof = _FLOOR[found.severity], _ROOF[found.severity]
    return max(floor, found.share if found.severity is Severity.CRITICAL else min(found.share, roof - 1e-9))
