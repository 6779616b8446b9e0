from __future__ import annotations

import pytest

from hotlap.diagnose.severity import finding, severity_of
from hotlap.facts.diagnosis import Basis, Cause, Severity


@pytest.mark.parametrize(
    ("share", "severity"),
    [(0.9, Severity.CRITICAL), (0.4, Severity.CRITICAL), (0.39, Severity.WARNING), (0.2, Severity.WARNING),
     (0.19, Severity.NOTE), (0.02, Severity.NOTE)],
)  # fmt: skip
def test_exposed_time_is_loud_only_where_it_is_much(share, severity):
    assert severity_of(share) is severity
    assert finding(Cause.HOST_SYNC, share, {}).severity is severity


@pytest.mark.parametrize(
    ("saved", "severity"), [(0.3, Severity.CRITICAL), (0.1, Severity.WARNING), (0.09, Severity.NOTE)]
)
def test_a_measured_saving_is_louder_than_a_bound(saved, severity):
    assert severity_of(saved, Basis.EXPERIMENT) is severity


def test_what_is_lost_in_the_noise_is_not_said():
    assert finding(Cause.HOST_SYNC, 0.019, {}) is None
    assert finding(Cause.HOST_SYNC, -0.3, {}) is None


def test_what_was_not_measured_is_left_out():
    assert finding(Cause.HOST_SYNC, 0.5, {"a": 0.0, "b": None, "c": ""}).evidence == {"a": 0.0, "c": ""}


def test_what_may_not_recur_is_held_down():
    held = finding(Cause.VALIDATION_HEAVY, 0.5, {}, at_most=Severity.NOTE)
    assert (held.severity, held.share) == (Severity.NOTE, 0.5)
    assert finding(Cause.VALIDATION_HEAVY, 0.05, {}, at_most=Severity.WARNING).severity is Severity.NOTE
