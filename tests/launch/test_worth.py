"""What all cores are worth together is measured, and leaves nothing behind."""

from __future__ import annotations

import os

import psutil
import pytest

from hotlap.launch import worth

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")


def test_it_lies_between_one_core_and_all_of_them():
    assert 1.0 <= worth.measured_worth(2) <= 2.0


def test_a_single_core_needs_no_measuring():
    assert worth.measured_worth(1) is None


def test_cores_that_slow_each_other_down_are_worth_less(monkeypatch):
    monkeypatch.setattr(worth, "slowest", lambda count, _: 0.02 if count == 1 else 0.03)
    assert worth.measured_worth(4) == pytest.approx(2.67)


def test_no_process_and_no_open_file_is_left():
    me = psutil.Process()
    before = (me.num_fds(), len(me.children()))
    worth.slowest(2, worth._work)
    assert (me.num_fds(), len(me.children())) == before
