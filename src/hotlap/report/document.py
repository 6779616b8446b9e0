"""A report's parts before they are drawn: sections of sentences and tables, in no output's own form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a column holds, which decides how it is aligned and drawn."""

    TEXT = "text"
    NUMBER = "number"
    CODE = "code"
    BAR = "bar"  # the cell is a share between 0 and 1


@dataclass(frozen=True)
class Column:
    """A heading and what stands below it."""

    title: str
    kind: Kind = Kind.TEXT


@dataclass(frozen=True)
class Table:
    """Rows of one cell per column; a BAR cell is a number, every other cell a text."""

    columns: tuple[Column, ...]
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


def column_titles(columns: Sequence[Column]) -> list[str]:
    """The headings in order; a bar needs none."""
    return ["" if column.kind is Kind.BAR else column.title for column in columns]
