"""A job that is in the phases after its window has heard the word to end, however long they take."""

from __future__ import annotations

import os
import time
from array import array

import pytest

from hotlap.launch import observe
from hotlap.launch.observe import Observer
from hotlap.probe import control, marks
from hotlap.probe.marks import Kind

STEP = marks.leave(Kind.STEP)
PATIENCE_S = 0.2


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Twenty steps of 10 ms were made, all steady, and ten wanted: it has been asked to end."""
    monkeypatch.setattr(observe, "_LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(observe, "_DEAF_AFTER_S", PATIENCE_S)
    control.create(tmp_path)
    observer = Observer(tmp_path, 10, lambda walls: 0, lambda text: None)

    def write(*values):
        with (tmp_path / "1.marks").open("ab") as file:
            file.write(array("q", values).tobytes())
        return observer.tick(os.getpid())

    steps = [mark for each in range(20) for mark in (each * 10_000_000 << 8 | STEP, marks.OPTIMIZER_ID)]
    assert write(*steps)
    yield write
    observer.close()


def make_steps(job, seconds=2 * PATIENCE_S):
    """Whether it may go on after steps that took longer than the patience."""
    end = time.monotonic() + seconds
    goes_on = True
    while time.monotonic() < end:
        time.sleep(PATIENCE_S / 10)
        goes_on = job(1 << 8 | STEP, marks.OPTIMIZER_ID)
    return goes_on


def test_steps_of_the_phases_are_waited_for(job):
    assert job(marks.WINDOW_END)
    assert make_steps(job)


def test_steps_of_a_script_that_goes_on_after_them_are_not(job):
    assert job(marks.WINDOW_END)
    assert make_steps(job)
    job(marks.PHASES_END)
    assert not make_steps(job)


def test_nor_are_those_of_one_that_has_not_heard(job):
    assert not make_steps(job)
