"""Listens at the garbage collector: full collections stop the training thread.

What a callback of the collector raises, CPython drops: an interrupt that comes during a collection is raised at the
first bytecode of the callback, and would be lost there. So the callback is a generator, which can catch that too,
called from C; and what it caught is raised again at the script's next bytecode, by a call that Python makes then.
"""

from __future__ import annotations

import ctypes
import functools
import gc
from collections.abc import Generator
from typing import Any

from hotlap.probe import marks
from hotlap.probe.marks import Kind
from hotlap.probe.session import Session, now

_ENTER, _LEAVE = marks.enter(Kind.COLLECT), marks.leave(Kind.COLLECT)
_OLDEST = 2  # young generations take microseconds and come all the time


def install(session: Session) -> None:
    listening = _listen(session, _Caught())
    next(listening)
    # `max` calls its key, in C, with each of the two arguments of a callback: the phase, then the details.
    callback = functools.partial(max, key=listening.send)
    gc.callbacks.append(callback)
    session.on_detach(lambda: gc.callbacks.remove(callback))


def _listen(session: Session, caught: _Caught) -> Generator[int, Any, None]:
    append, origin = session.append, session.origin
    phase = ""
    while True:
        try:
            while True:
                word = yield 0
                if isinstance(word, str):
                    phase = word
                elif word["generation"] == _OLDEST:
                    append((now() - origin) << 8 | (_ENTER if phase == "start" else _LEAVE))
        except GeneratorExit:
            raise
        except BaseException as error:  # of a signal handler: the script's
            caught.raise_soon(error)


class _Caught:
    """Has an exception raised between two bytecodes of the main thread, once the collector has returned."""

    def __init__(self) -> None:
        self._error: BaseException | None = None
        add: Any = ctypes.PyDLL(None).Py_AddPendingCall
        add.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.py_object, ctypes.py_object)
        length = ctypes.cast(ctypes.pythonapi.PyObject_Length, ctypes.c_void_p)
        # C takes no notice of the two arguments of a callback, which come after its own.
        self._add = functools.partial(add, length, self)

    def raise_soon(self, error: BaseException) -> None:
        """The collector also calls what is added to its callbacks meanwhile: after this one, no bytecode between."""
        self._error = error
        if self._add not in gc.callbacks:
            gc.callbacks.append(self._add)

    def __len__(self) -> int:
        """Called by the interpreter, which passes on what it raises."""
        if self._add in gc.callbacks:
            gc.callbacks.remove(self._add)
        error, self._error = self._error, None
        if error is not None:
            raise error
        return 0
