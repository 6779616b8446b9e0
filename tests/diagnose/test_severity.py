from __future__ import annotations

import pytest

from hotlap.diagnose.severity import finding, severity_of, weight
from hotlap.facts.diagnosis import Cause, Finding, Severity


@pytest.mark.parametrize(
    ("share", "severity"),
    [(0.9, Severity.CRITICAL), (0.3, Severity.CRITICAL), (0.29, Severity.WARNING), (0.1, Severity.WARNING),
     (0.09, Severity.NOTE), (0.02, Severity.NOTE)],
)  # fmt: skip
def test_severity_goes_by_the_share(share, severity):
    assert severity_of(share) is severity
    assert finding(Cause.HOST_SYNC, share, {}).severity is severity


def test_what_is_lost_in_the_noise_is_not_said():
    assert finding(Cause.HOST_SYNC, 0.019, {}) is None
    assert finding(Cause.HOST_SYNC, -0.3, {}) is None


def test_what_was_not_measured_is_left_out():
    assert finding(Cause.HOST_SYNC, 0.5, {"a": 0.0, "b": None, "c": ""}).evidence == {"a": 0.0, "c": ""}


def test_an_estimate_is_held_down():
    held = finding(Cause.UNCOMPILED, 0.5, {}, at_most=Severity.NOTE)
    assert (held.severity, held.share) == (Severity.NOTE, 0.5)
    assert finding(Cause.UNCOMPILED, 0.05, {}, at_most=Severity.WARNING).severity is Severity.NOTE


def test_weight_keeps_to_the_severity():
    free = Finding(Cause.MEMORY_GROWTH, Severity.WARNING, 0.0)
    held = Finding(Cause.UNCOMPILED, Severity.NOTE, 0.5)
    plain = Finding(Cause.HOST_SYNC, Severity.CRITICAL, 0.5)
    assert weight(held) < weight(free) < weight(plain) == 0.5
