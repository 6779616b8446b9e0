"""A rewrite as a setting of a plan: what searches, experiments and the guard do with knobs they do with it too."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, ClassVar

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.rewrite import Recognised, Rewriting
from hotlap.facts.timeline import Timeline
from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Seam, Undo
from hotlap.ports.values import Values
from hotlap.probe.sampler import frames_kept
from hotlap.rewriting import hook
from hotlap.rewriting.hook import edited_file
from hotlap.source.files import UnreadableError, compiled

_OF_ITEMS = frozenset({Cause.ITEM_CPU_BOUND})


class _Described(Values):
    """A place in the user's source, as `Rewriting.setting` writes it."""

    def __init__(self, key: str) -> None:
        self._key = key

    @property
    def shown(self) -> str:
        return "an entry of a plan's rewrites"

    def read(self, value: Any) -> str:
        try:
            return Rewriting.of(self._key, value).setting
        except ValueError:
            raise self.refuse(value) from None


class _RewriteKnob(Knob):
    relieves: ClassVar[frozenset[Cause]] = frozenset()
    seam = Seam.PROCESS
    numerics = Numerics.ROUNDING
    live = True
    recognised: ClassVar[Recognised | None] = None
    folder: ClassVar[str] = ""

    def settings(self, host: Host, timeline: Timeline) -> tuple[Any, ...]:  # noqa: ARG002
        known = self.recognised
        return (known.rewriting.setting,) if known is not None and known.rewriting is not None else ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:  # noqa: ARG002
        return self.recognised.share if self.recognised is not None else 0.0

    def apply(self, target: Any, setting: Any) -> Undo:  # noqa: ARG002
        """Modules of a process that was started under the plan are loaded with it; else functions are switched."""
        reason = hook.installed().get(self.id)
        if reason:
            raise CannotActError(reason)
        if reason == "":
            return lambda: None
        return switch(Rewriting.of(self.id, setting), self.folder or os.getcwd())  # noqa: PTH109

    def numerics_at(self, target: Any, setting: Any) -> Numerics:  # noqa: ARG002
        return Numerics(Rewriting.of(self.id, setting).numerics)


def knob_of(key: str, folder: str = "") -> Knob:
    """The knob of a rewrite that a plan names."""
    return _made(id=key, values=_Described(key), folder=folder)


def knob_for(recognised: Recognised) -> Knob | None:
    """The knob of one that was recognised in a run; None for advice."""
    rewriting = recognised.rewriting
    if rewriting is None:
        return None
    return _made(
        id=rewriting.key,
        values=_Described(rewriting.key),
        numerics=Numerics(rewriting.numerics),
        relieves=_OF_ITEMS if recognised.feeds else frozenset(),
        recognised=recognised,
    )


def _made(**own: Any) -> Knob:
    """Each has a class of its own, as knobs of files have."""
    found: Knob = type("RewriteKnob", (_RewriteKnob,), own)()
    return found


# Switches functions of a running process to their rewritten form and back: new calls run the other code.


RUNNING = "the function that holds it is running: only a fresh process can show it"
NO_FUNCTION = "no function of the running process holds it: only a fresh process can show it"
Name = tuple[str, int]


def switch(wanted: Rewriting, folder: str) -> Callable[[], None]:
    """Returns the way back; raises CannotActError. Files are relative to the folder."""
    file = os.path.realpath(Path(folder, wanted.file))
    try:
        source, edits = edited_file(Path(file), [wanted])
        before, after = compiled(source.text, [], file), compiled(source.text, edits, file)
    except (UnreadableError, SyntaxError, ValueError) as error:
        raise CannotActError(str(error)) from None
    changed = _changed(before, after)
    found = [each for each in _functions() if _key(each.__code__) in changed and _is_of(each.__code__, file)]
    if not found:
        raise CannotActError(NO_FUNCTION)
    running = {_key(code) for code in _running() if _is_of(code, file)} & changed.keys()
    if any(not _can_go_on(changed[key], key, found) for key in running):
        raise CannotActError(RUNNING)
    found = [each for each in found if _key(each.__code__) not in running]
    if any(each.__code__.co_code != changed[_key(each.__code__)][0].co_code for each in found):
        raise CannotActError(f"{wanted.function} in {wanted.file} is not the code that runs")
    original = [(each, each.__code__) for each in found]
    try:
        for each in found:
            new = changed[_key(each.__code__)][1]
            each.__code__ = new.replace(co_filename=each.__code__.co_filename)
    except ValueError as error:
        _restore(original)
        raise CannotActError(str(error)) from None
    return lambda: _restore(original)


def _can_go_on(pair: tuple[CodeType, CodeType], key: Name, found: list[FunctionType]) -> bool:
    """Whether a function that runs has changed only within functions that it has made already."""
    old, new = (
        (code.co_code, [each for each in code.co_consts if not isinstance(each, CodeType)]) for code in pair
    )
    return old == new and any(each.__qualname__.startswith(f"{key[0]}.<locals>.") for each in found)


def _restore(original: list[tuple[FunctionType, CodeType]]) -> None:
    for function, code in original:
        function.__code__ = code


def _changed(before: CodeType, after: CodeType) -> dict[Name, tuple[CodeType, CodeType]]:
    """Functions, by name and line, whose code differs, before and after."""
    old, new = dict(_codes(before)), dict(_codes(after))
    return {key: (old[key], new[key]) for key in old.keys() & new.keys() if old[key] != new[key]}


def _codes(code: CodeType) -> Iterator[tuple[Name, CodeType]]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield _key(each), each
            yield from _codes(each)


def _key(code: CodeType) -> Name:
    return code.co_qualname, code.co_firstlineno


def _is_of(code: CodeType, file: str) -> bool:
    return os.path.realpath(code.co_filename) == file


def _functions() -> Iterator[FunctionType]:
    for each in gc.get_objects():
        if type(each) is FunctionType:
            yield each


def _running() -> list[CodeType]:
    running = []
    with frames_kept():
        for top in sys._current_frames().values():
            frame: FrameType | None = top
            while frame is not None:
                running.append(frame.f_code)
                frame = frame.f_back
    return running
