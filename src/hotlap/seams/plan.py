"""Checks settings against the knobs there are, before a script starts: ids, values, and what excludes what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

from hotlap.discover import pick
from hotlap.errors import UsageError
from hotlap.ports.knob import Knob
from hotlap.ports.values import NotAllowedError


def checked(settings: Mapping[Any, Any], knobs: Mapping[str, Knob]) -> dict[str, Any]:
    """The settings as their knobs read them; the first that is wrong is refused, with the nearest right one."""
    read = {}
    for key, value in settings.items():
        knob = knobs[pick("knob", str(key), knobs)]
        read[knob.id] = _read(knob, value)
    _refuse_clashes(read, knobs)
    return read


def from_words(words: Iterable[str], knobs: Mapping[str, Knob]) -> dict[str, Any]:
    """Settings as the command line has them: `--set num-workers=4`; the last word on a knob counts."""
    settings = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            known = knobs[pick("knob", key, knobs)]
            raise UsageError(
                f"--set {word} gives no value.", f"write --set {key}=VALUE: {known.values.shown}"
            )
        settings[key.strip()] = value.strip()
    return checked(settings, knobs)


def _read(knob: Knob, value: Any) -> Any:
    try:
        return knob.values.read(value)
    except NotAllowedError as error:
        raise UsageError(f"{knob.id}: {error.what}.", error.remedy) from None


def _refuse_clashes(settings: Mapping[str, Any], knobs: Mapping[str, Knob]) -> None:
    for one, other in combinations(sorted(settings), 2):
        for key, rest in ((one, other), (other, one)):
            reason = knobs[key].clash(settings[key], rest, settings[rest])
            if reason:
                raise UsageError(
                    f"{one} and {other} exclude each other: {reason}.", f"leave out {one} or {other}"
                )
