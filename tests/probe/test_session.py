"""The probe's session: what is left out while experiments run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hotlap.facts.timeline import Stage
from hotlap.probe.session import Session


class Loop:
    """A framework's trainer: what it counts for its log is computed with."""

    def __init__(self) -> None:
        self.written: list[int] = []

    def count(self, step: int) -> float:
        return 2.0 * step

    def save(self, step: int) -> None:
        self.written.append(step)


@pytest.fixture
def session(tmp_path: Path) -> Any:
    held = Session(tmp_path, 0)
    held.stage(Loop, "count", Stage.LOG)
    held.stage(Loop, "save", Stage.CHECKPOINT)
    yield held
    held.detach()


def test_a_call_that_is_left_out_returns_what_it_returned_before(session: Any) -> None:
    loop = Loop()
    assert loop.count(3) == 6.0
    loop.save(3)
    session.experimenting = True
    assert loop.count(4) == 6.0
    assert loop.save(4) is None
    assert loop.written == [3]
