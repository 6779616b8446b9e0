"""The phases after the window: each gets its steps, none outlives the script, no fault reaches it."""

from __future__ import annotations

import json

import pytest

from hotlap.probe import boundary, marks
from hotlap.probe.control import WindowDone
from hotlap.probe.epilogue import Epilogue
from hotlap.probe.feed import Feed


class Recorded:
    """A phase that writes down what it is told."""

    over = False

    def __init__(self, name: str, steps: int, told: list[str]) -> None:
        self.name, self.steps, self.told = name, steps, told

    def begin(self) -> None:
        self.told.append(f"{self.name} begins")

    def step_made(self) -> None:
        self.told.append(f"{self.name} step")

    def end(self) -> None:
        self.told.append(f"{self.name} ends")


class Broken(Recorded):
    def begin(self) -> None:
        raise RuntimeError("no begin")

    def end(self) -> None:
        raise RuntimeError("no end")


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def epilogue(session):
    return Epilogue(session)


def until_done(epilogue: Epilogue, most: int = 50) -> int:
    """Steps that were made until the script was ended."""
    for step in range(1, most):
        try:
            epilogue.step_made()
        except WindowDone:
            return step
    raise AssertionError("it never ends")


def test_without_phases_the_first_step_is_the_last(epilogue):
    assert until_done(epilogue) == 1


def test_phases_follow_each_other(epilogue, told):
    epilogue.add(Recorded("one", 2, told))
    epilogue.add(Recorded("two", 1, told))
    assert until_done(epilogue) == 4, "the step that ends the window, and three of the phases"
    assert told == ["one begins", "one step", "one step", "one ends", "two begins", "two step", "two ends"]


def test_a_script_that_goes_on_is_told_again_and_no_phase_comes_back(epilogue, told):
    epilogue.add(Recorded("one", 1, told))
    until_done(epilogue)
    seen = list(told)
    for _ in range(3):
        with pytest.raises(WindowDone):
            epilogue.step_made()
    assert told == seen


def test_a_script_that_ends_in_a_phase_ends_the_phase(session, epilogue, told):
    epilogue.add(Recorded("one", 5, told))
    epilogue.add(Recorded("two", 5, told))
    session.endings.append(epilogue.close)
    epilogue.step_made()
    epilogue.step_made()
    session.end()
    assert told == ["one begins", "one step", "one ends"]
    session.end()
    assert told.count("one ends") == 1


def test_a_script_that_ends_in_the_window_begins_no_phase(session, epilogue, told):
    epilogue.add(Recorded("one", 5, told))
    session.endings.append(epilogue.close)
    session.end()
    assert told == []


def test_a_phase_that_fails_does_not_reach_the_script(epilogue, told):
    epilogue.add(Broken("one", 2, told))
    epilogue.add(Recorded("two", 1, told))
    assert until_done(epilogue) == 4
    assert told[-1] == "two ends"
    assert [fault.split(": ")[-1].split(" at ")[0] for fault in boundary.faults] == ["no begin", "no end"]
    boundary.faults.clear()


def test_what_is_known_of_the_window_stays(session, epilogue, told):
    """Counters go on in the phases, and a phase adds its own facts."""
    counted = {"waits": 7}
    session.note("counted", counted)
    session.note("steps", 30)
    session.mark(marks.enter(marks.Kind.DATA))
    epilogue.add(Recorded("one", 3, told))
    epilogue.last_acts.append(lambda: session.note("items", "same"))
    epilogue.step_made()
    counted["waits"] = 99
    session.note("steps", 33)
    session.note("free_input_ns", [5])
    session.write_facts()
    facts = json.loads((session.folder / f"{session.pid}.json").read_text())
    assert (facts["counted"], facts["steps"]) == ({"waits": 7}, 30)
    assert (facts["free_input_ns"], facts["items"], facts["window_done"]) == ([5], "same", True)
    assert facts["window_end"] > 0
    assert facts["marks"] == 1, "the window's own, also one that had not been written yet"


def test_the_end_of_the_window_and_of_the_phases_are_marked(session, epilogue, told, written):
    epilogue.add(Recorded("one", 1, told))
    until_done(epilogue)
    codes = [code for code, _ in written()]
    assert codes == [str(marks.WINDOW_END), str(marks.PHASES_END)]


def test_learning_ends_with_the_window(session, epilogue):
    session.feed = Feed()
    until_done(epilogue)
    assert not session.feed.learns
