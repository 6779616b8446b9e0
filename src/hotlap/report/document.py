"""A report's parts before they are drawn: sections of sentences and tables, in no output's own form."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class ColumnKind(StrEnum):
    """What a column holds, which decides how it is aligned and drawn."""

    TEXT = "text"
    NUMBER = "number"
    CODE = "code"
    COMMAND = "to-type"  # to be copied; a terminal has no room beside the others and lists them below
    BAR = "bar"  # the cell is a share between 0 and 1


@dataclass(frozen=True)
class TableColumn:
    """A heading and what stands below it."""

    title: str
    kind: ColumnKind = ColumnKind.TEXT


@dataclass(frozen=True)
class Table:
    """Rows of one cell per column; a BAR cell is a number, every other cell a text."""

    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[str | float, ...], ...]
    colours: tuple[str, ...] = ()  # of the rows, by name, where they have one each


@dataclass(frozen=True)
class Section:
    """A heading with what is said below it; `notes` are the small print."""

    id: str
    title: str
    sentences: tuple[str, ...] = ()
    table: Table | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Point:
    """A word such as Verdict with what is said beside it, and commands to type."""

    label: str
    sentences: tuple[str, ...]
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Strip:
    """A bar: what it is of, its length against the longest, and (colour, name, share) of each of its parts."""

    title: str
    length: float
    parts: tuple[tuple[str, str, float], ...]


@dataclass(frozen=True)
class Document:
    """A whole outcome. `tone` is good, warning, critical or none; `figures` are (figure, what it is)."""

    title: str
    command: str
    tone: str
    points: tuple[Point, ...]
    sections: tuple[Section, ...]
    closing: tuple[str, ...] = ()
    figures: tuple[tuple[str, str], ...] = ()
    strips: tuple[Strip, ...] = ()


def column_titles(columns: Sequence[TableColumn]) -> list[str]:
    """The headings in order; a bar needs none."""
    return ["" if column.kind is ColumnKind.BAR else column.title for column in columns]


# Values of others made safe to write: text with control characters, numbers that JSON does not know.


# Characters that end a line for some reader, or that turn the direction of what follows them.
_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def printable(text: str) -> str:
    """The text on one line, with every control character written out (`\\x1b`)."""
    if text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character == "\t":
        return "    "
    if unicodedata.category(character) in _CATEGORIES:
        return character.encode("unicode_escape").decode("ascii")
    return character


def finite(plain: Any) -> Any:
    """Plain data with None for numbers that are not finite: they were not measured, and JSON lacks them."""
    if isinstance(plain, dict):
        return {key: finite(value) for key, value in plain.items()}
    if isinstance(plain, list):
        return [finite(value) for value in plain]
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain
