"""What a drawing in the terminal is made of: 100 columns, readable without colour, in ASCII where need be."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TextIO

from hotlap.report import wrapping
from hotlap.report.document import Kind, Section, Table, column_titles
from hotlap.report.locale import Phrases
from hotlap.report.plain import printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

WIDTH = 100
LABEL = 9  # columns of the words Verdict, Why and Next
BESIDE = WIDTH - LABEL
BAR = 30
NARROW_BAR = 10  # in a table of many columns
# What a terminal shows of a long table or list; the HTML report has all of it.
MOST_ROWS = 8
MOST_LINES = 5

SEVERITY = {"critical": "bold red", "warning": "bold yellow", "note": "cyan"}


def show(draw: Callable[[bool, bool], str], stream: TextIO | None = None) -> None:
    """Write what `draw(colour, ascii_only)` makes to a stream, as well as that stream can show it."""
    out = stream or sys.stdout
    encoding = out.encoding or "utf-8"
    drawn = draw(wants_colour(out), not _encodes_bars(encoding))
    out.write(drawn.encode(encoding, "replace").decode(encoding))


def wants_colour(stream: TextIO) -> bool:
    """A terminal, unless the user or the terminal says otherwise (NO_COLOR, TERM=dumb)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def drawn(parts: Iterable[RenderableType], colour: bool) -> str:
    """All parts below each other, as text."""
    from rich.console import Console

    sheet = io.StringIO()
    # `_environ`: what is drawn depends on what is asked for here, and not on COLUMNS or FORCE_COLOR.
    console = Console(
        file=sheet, width=WIDTH, force_terminal=colour, color_system="standard" if colour else None,
        highlight=False, markup=False, emoji=False, legacy_windows=False, _environ={},
    )  # fmt: skip
    for part in parts:
        console.print(part)
    return "\n".join(wrapping.finished(line).rstrip() for line in sheet.getvalue().split("\n"))


def section(part: Section, ascii_only: bool, say: Phrases, most: int = MOST_ROWS) -> Iterable[RenderableType]:
    """A heading with its sentences, its table and its small print; `most` of either are shown."""
    yield ""
    yield text(part.title, "bold")
    most = min(most, MOST_LINES) if part.id == "lines" else most
    yield from (indented(text(sentence)) for sentence in part.sentences[:most])
    if part.table is not None:
        yield indented(_table(part.table, ascii_only, most))
    hidden = max(len(part.sentences), len(part.table.rows) if part.table else 0) - most
    if hidden > 0:
        yield indented(text(say("more", count=hidden), "dim"))
    yield from (indented(text(note, "dim")) for note in part.notes)


def _table(table: Table, ascii_only: bool, most: int) -> RenderableType:
    from rich.table import Table as RichTable

    drawn = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for column, title in zip(table.columns, column_titles(table.columns), strict=True):
        right = column.kind is Kind.NUMBER
        drawn.add_column(text(title), justify="right" if right else "left", no_wrap=right, overflow="fold")
    width = BAR if len(table.columns) <= 6 else NARROW_BAR
    for row in table.rows[:most]:
        drawn.add_row(*(_cell(cell, width, ascii_only) for cell in row))
    return drawn


def _cell(cell: str | float, width: int, ascii_only: bool) -> Text:
    return text(cell) if isinstance(cell, str) else text(bar(cell, width, ascii_only), "cyan")


def bar(share: float, width: int, ascii_only: bool) -> str:
    """A share as a bar; what is not nothing gets at least one mark."""
    full = min(width, max(1 if share > 0 else 0, round(share * width)))
    return ("#" if ascii_only else "█") * full + ("." if ascii_only else "░") * (width - full)


def labelled(label: str, lines: Iterable[RenderableType]) -> RenderableType:
    """Lines beside a word that says what they are."""
    from rich.console import Group
    from rich.table import Table as RichTable

    grid = RichTable.grid(padding=0)
    grid.add_column(width=LABEL)
    grid.add_column(ratio=1, overflow="fold")
    grid.expand = True
    grid.add_row(text(label, "bold"), Group(*lines))
    return grid


def indented(part: RenderableType, by: int = 2) -> RenderableType:
    """A part, some columns further to the right."""
    from rich.padding import Padding

    return Padding(part, (0, 0, 0, by))


def text(words: str, style: str = "", width: int = WIDTH - 2) -> Text:
    """Words that act on no terminal, ready to be wrapped to a width."""
    from rich.text import Text

    return Text(wrapping.prepared(printable(words), width), style=style, overflow="fold")


def one_line(words: str, style: str, width: int) -> Text:
    """Words that are cut off rather than wrapped."""
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    line = printable(words)
    if cell_len(line) > width:
        line = f"{set_cell_size(line, width - 4).rstrip()} ..."
    return Text(line, style=style)


def _encodes_bars(encoding: str) -> bool:
    try:
        "█░".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
