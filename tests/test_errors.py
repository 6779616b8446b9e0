"""An error states what happened and one remedy; its exit code is part of the contract."""

from __future__ import annotations

import pytest

from hotlap.errors import FactError, HotlapError, JobError, UsageError


def test_the_remedy_stands_below():
    assert (
        str(UsageError("no knob is called 'x'.", "did you mean 'y'?"))
        == "no knob is called 'x'.\n  -> did you mean 'y'?"
    )


def test_without_a_remedy_there_is_no_arrow():
    assert str(HotlapError("it broke.")) == "it broke."


@pytest.mark.parametrize(("kind", "code"), [(HotlapError, 2), (UsageError, 2), (FactError, 2), (JobError, 3)])
def test_exit_codes(kind, code):
    assert kind("x").exit_code == code
