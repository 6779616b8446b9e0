"""The knobs that this hotlap has, by id: those of its folder and those of entry points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

from hotlap import knobs
from hotlap.discover import pick, unit, units
from hotlap.errors import UsageError
from hotlap.facts.rewrite import is_rewrite
from hotlap.ports.knob import Knob
from hotlap.ports.values import NotAllowedError

GROUP = "hotlap.knobs"


def all_knobs() -> dict[str, Knob]:
    return {knob.id: knob for knob in units(knobs, Knob, GROUP)}  # type: ignore[type-abstract]


def shortening(known: Mapping[str, Knob]) -> frozenset[str]:
    """Those beside which speed is counted in samples, never in tokens."""
    return frozenset(key for key, knob in known.items() if knob.shortens)


def some_knobs(ids: Iterable[str]) -> dict[str, Knob]:
    """Only these, as far as there are: a training process imports what its plan names."""
    several = list(ids)
    wanted = [key for key in several if not is_rewrite(key)]
    rewrites = with_rewrites({}, several)
    try:
        return {key: unit(knobs, Knob, key) for key in wanted} | rewrites  # type: ignore[type-abstract]
    except ModuleNotFoundError:  # one of an entry point, or in a file of another name
        found = all_knobs()
        return {key: found[key] for key in wanted if key in found} | rewrites


def with_rewrites(known: Mapping[str, Knob], ids: Iterable[str], home: str = "") -> dict[str, Knob]:
    """These knobs, and one for each rewrite among the ids; `home` is the folder that the job began in."""
    wanted = [key for key in ids if is_rewrite(key) and key not in known]
    if not wanted:
        return dict(known)
    from hotlap.rewriting.knob import knob_of

    return {**known, **{key: knob_of(key, home) for key in wanted}}


# Checks settings against the knobs there are, before a script starts: ids, values, and what excludes what.


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
