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


def test_what_steers_a_terminal_is_shown_and_not_sent():
    error = str(UsageError("no '\x1b[2J\x9b\u202e\u2066\x07a\tb'.", "try \x1b[0m"))
    assert error == "no '\\x1b[2J\\u009b\\u202e\\u2066\\x07a\tb'.\n  -> try \\x1b[0m"


def test_a_long_message_loses_its_middle():
    error = str(FactError("begin" + "x" * 10_000_000 + "end", "y" * 10_000))
    assert len(error) < 2000
    assert error.startswith("begin")
    assert "end\n  -> y" in error
