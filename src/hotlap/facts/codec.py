"""Facts to plain data and back: dataclasses, enums, tuples and mappings, checked on the way in.

Files are written whole or not at all, so that a kill at any moment leaves the old file or the new one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from hotlap.errors import FactError
from hotlap.facts import private

SCHEMA = 1
MOST_DIGITS = 20  # of a whole number: no count, size or clock has more
MOST_LEVELS = 50


def to_plain(fact: Any) -> Any:
    """A fact as dicts, lists, strings, numbers and None; of one with `stored()`, what may be written down."""
    if dataclasses.is_dataclass(fact) and not isinstance(fact, type):
        fact = fact.stored() if hasattr(fact, "stored") else fact
        return {field.name: to_plain(getattr(fact, field.name)) for field in dataclasses.fields(fact)}
    if isinstance(fact, Enum):
        return fact.value
    if isinstance(fact, Mapping):
        return {str(to_plain(key)): to_plain(value) for key, value in fact.items()}
    if isinstance(fact, str | bytes) or not isinstance(fact, Sequence):
        return fact
    return [to_plain(item) for item in fact]


def from_plain(kind: Any, plain: Any, where: str = "") -> Any:
    """The fact of type `kind` that `plain` describes; unknown keys of a newer hotlap are ignored."""
    if type(plain) is kind:
        return plain  # most of a long run's numbers
    origin = typing.get_origin(kind)
    if kind is Any:
        return plain
    if origin in (typing.Union, types.UnionType):
        return _from_union(kind, plain, where)
    if dataclasses.is_dataclass(kind):
        return _from_dataclass(kind, plain, where)
    if origin is not None:
        return _from_container(kind, origin, plain, where)
    return _from_scalar(kind, plain, where)


def write_json(path: Path, fact: Any, *, shared: bool = False) -> None:
    """Write a fact with its schema version, atomically."""
    plain = to_plain(fact)
    body = {"schema": SCHEMA, **plain} if isinstance(plain, dict) else plain
    write_text(path, json.dumps(body, indent=1, ensure_ascii=False) + "\n", shared=shared)


def write_text(path: Path, text: str, *, shared: bool = False) -> None:
    """Write a text file atomically."""
    write_bytes(path, text.encode(), shared=shared)


def write_bytes(path: Path, content: bytes, *, shared: bool = False) -> None:
    """Write a file atomically: beside its place first, then moved over it. `shared`: not for its owner alone."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if shared:
            draft.write_bytes(content)
        else:
            draft.unlink(missing_ok=True)
            private.write(draft, content)
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def read_json(path: Path, kind: Any) -> Any:
    """Read a fact; a missing, torn or newer file is refused with its name."""
    try:
        plain = parse_json(path.read_bytes())
    except FileNotFoundError:
        raise FactError(
            f"there is no {path.name} in {path.parent}.", "is this a hotlap run folder?"
        ) from None
    except OSError as error:
        raise FactError(f"{path} cannot be read: {error.strerror}.", "is this a hotlap run folder?") from None
    except ValueError as error:
        raise FactError(f"{path} is not readable JSON: {error}.", "record the run again") from None
    check_schema(plain, path)
    try:
        return from_plain(kind, plain, path.name)
    except FactError as error:
        raise FactError(f"{path.parent}: {error.what}", error.remedy or "record the run again") from None


def parse_json(content: str | bytes) -> Any:
    """Plain data; raises ValueError for what hotlap would not write: damaged, deep, with huge numbers."""
    text = content if isinstance(content, str) else content.decode("utf-8")
    try:
        plain = json.loads(text, parse_int=_whole)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if text.count("[") + text.count("{") > MOST_LEVELS and _levels(plain) > MOST_LEVELS:
        raise ValueError(f"it has more than {MOST_LEVELS} levels")
    return plain


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number has {len(digits):,} digits")
    return int(digits)


def _levels(plain: Any) -> int:
    """How deep it is nested; no deeper than what is refused is looked at."""
    level, depth = [plain], 0
    while level and depth <= MOST_LEVELS:
        parts = (
            each.values() if isinstance(each, dict) else each
            for each in level
            if isinstance(each, dict | list)
        )
        level, depth = [item for part in parts for item in part if isinstance(item, dict | list)], depth + 1
    return depth


def check_schema(plain: Any, path: Path) -> None:
    """Refuse what a newer hotlap wrote."""
    schema = plain.get("schema", SCHEMA) if isinstance(plain, dict) else SCHEMA
    if not isinstance(schema, int) or isinstance(schema, bool) or schema > SCHEMA:
        raise FactError(
            f"{path} has schema {schema}, this hotlap reads up to {SCHEMA}.",
            "update hotlap: pip install -U hotlap",
        )


def _from_union(kind: Any, plain: Any, where: str) -> Any:
    options = typing.get_args(kind)
    if plain is None and type(None) in options:
        return None
    faults: list[FactError] = []
    for option in options:
        if option is type(None):
            continue
        try:
            return from_plain(option, plain, where)
        except FactError as fault:
            faults.append(fault)
    raise faults[0]


def _from_dataclass(kind: Any, plain: Any, where: str) -> Any:
    if not isinstance(plain, dict):
        raise FactError(f"{where} should be a mapping, not {plain!r:.60}.")
    hints = _hints(kind)
    values = {}
    for field in dataclasses.fields(kind):
        if field.name in plain:
            values[field.name] = from_plain(hints[field.name], plain[field.name], f"{where}.{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise FactError(f"{where} lacks '{field.name}'.", "record the run again")
    made = kind(**values)
    # Types alone do not tell a rate of -1, which hotlap never writes: a fact may say what else it cannot be.
    if hasattr(made, "fault") and (fault := made.fault()):
        raise FactError(f"{where}: {fault}.", "record the run again")
    return made


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)


def _from_container(kind: Any, origin: Any, plain: Any, where: str) -> Any:
    arguments = typing.get_args(kind)
    if issubclass(origin, Mapping):
        if not isinstance(plain, dict):
            raise FactError(f"{where} should be a mapping, not {plain!r:.60}.")
        return {
            from_plain(arguments[0], key, where): from_plain(arguments[1], value, f"{where}.{key}")
            for key, value in plain.items()
        }
    if isinstance(plain, str) or not isinstance(plain, Sequence):
        raise FactError(f"{where} should be a list, not {plain!r:.60}.")
    if origin is tuple and Ellipsis not in arguments:
        if len(plain) != len(arguments):
            raise FactError(f"{where} should have {len(arguments)} entries, not {len(plain)}.")
        return tuple(from_plain(each, item, where) for each, item in zip(arguments, plain, strict=True))
    items = (from_plain(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(plain))
    return tuple(items) if origin is tuple else list(items)


def _from_scalar(kind: Any, plain: Any, where: str) -> Any:
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(plain)
        except (ValueError, TypeError):
            known = ", ".join(str(member.value) for member in kind)
            raise FactError(f"{where} is {plain!r:.60}, not one of {known}.") from None
    if kind is float and isinstance(plain, int) and not isinstance(plain, bool):
        return plain  # it stays what it was, so that a fact comes back as it was written
    if not isinstance(plain, kind) or (kind is not bool and isinstance(plain, bool)):
        raise FactError(f"{where} should be {kind.__name__}, not {plain!r:.60}.")
    return plain
