"""Listens at the garbage collector: full collections stop the training thread."""

from __future__ import annotations

import gc
from typing import Any

from hotlap.probe import marks
from hotlap.probe.marks import Kind
from hotlap.probe.session import Session, now

_ENTER, _LEAVE = marks.enter(Kind.COLLECT), marks.leave(Kind.COLLECT)
_OLDEST = 2  # young generations take microseconds and come all the time


def install(session: Session) -> None:
    append, origin = session.append, session.origin

    def listen(phase: str, details: dict[str, Any]) -> None:
        if details["generation"] == _OLDEST:
            append((now() - origin) << 8 | (_ENTER if phase == "start" else _LEAVE))

    gc.callbacks.append(listen)
    session.on_detach(lambda: gc.callbacks.remove(listen))
