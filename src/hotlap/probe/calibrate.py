"""Measures what a mark costs where it counts: right after a step, when the caches hold the model and not the probe."""

from __future__ import annotations

from array import array
from collections.abc import Callable

from hotlap.probe import marks
from hotlap.probe.marks import Kind
from hotlap.probe.session import Session, now

_FIRST, _LAST = 3, 18  # steps: after the first ones, few enough to cost nothing


def install(session: Session) -> None:
    """Times one marked call per step for a few steps; the median goes to the facts."""
    spent: list[int] = []
    empty = _marked_nothing(session)
    step = 0

    def measure() -> bool:
        nonlocal step
        step += 1
        if _FIRST <= step <= _LAST:
            started = now()
            empty()
            spent.append(now() - started)
            session.facts["mark_ns"] = sorted(spent)[len(spent) // 2] // 2
        return step < _LAST

    session.step_ends.append(measure)


def _marked_nothing(session: Session) -> Callable[[], None]:
    scratch, origin = array("q"), session.origin
    enter, leave = marks.enter(Kind.LOG), marks.leave(Kind.LOG)

    def nothing() -> None:
        scratch.append((now() - origin) << 8 | enter)
        try:
            return
        finally:
            scratch.append((now() - origin) << 8 | leave)

    return nothing
