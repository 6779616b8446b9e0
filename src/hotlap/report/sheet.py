"""What a drawing in the terminal is made of: 100 columns, readable without colour, in ASCII where need be."""

from __future__ import annotations

import io
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TextIO

from hotlap.report.document import ColumnKind, Document, Point, Section, Table, column_titles, printable
from hotlap.report.locale import Phrases

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
MOST_OF_OUTCOME = 24  # an outcome is read once, and every row of it is a reason
ON_THE_PAGE = "trials"  # they were told one by one as they ended

_WORD = re.compile(r"(?:'[^']*'|\S)+")
SEVERITY = {"critical": "bold red", "warning": "bold yellow", "note": "cyan"}
TONES = {"good": "bold green", "warning": "bold yellow", "critical": "bold red"}


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
    return "\n".join(finished(line).rstrip() for line in sheet.getvalue().split("\n"))


def draw_document(document: Document, say: Phrases, colour: bool = False, ascii_only: bool = False) -> str:
    """A document as text: its points beside their words, then its sections."""
    return drawn(_parts(document, say, ascii_only), colour)


def _parts(document: Document, say: Phrases, ascii_only: bool) -> Iterable[RenderableType]:
    yield labelled("hotlap", [text(document.command, "dim", BESIDE)])
    for number, point in enumerate(document.points):
        yield ""
        yield labelled(point.label, _lines(point, TONES.get(document.tone, "bold") if number == 0 else ""))
    for part in document.sections:
        if part.id == ON_THE_PAGE:
            continue
        yield from section(part, ascii_only, say, MOST_OF_OUTCOME)
    yield ""
    yield from (text(line, "dim") for line in document.closing)


def _lines(point: Point, style: str) -> list[Text]:
    lines = [text(sentence, style, BESIDE) for sentence in point.sentences]
    return lines + [text(part, "bold") for line in point.commands for part in typed_lines(line, BESIDE)]


def section(part: Section, ascii_only: bool, say: Phrases, most: int = MOST_ROWS) -> Iterable[RenderableType]:
    """A heading with its sentences, its table and its small print; `most` of either are shown."""
    yield ""
    yield text(part.title, "bold")
    most = min(most, MOST_LINES) if part.id == "lines" else most
    yield from (indented(text(sentence)) for sentence in part.sentences[:most])
    if part.table is not None:
        yield indented(_table(part.table, ascii_only, most))
        yield from (indented(text(line, "bold")) for line in _commands(part.table, most))
    hidden = max(len(part.sentences), len(part.table.rows) if part.table else 0) - most
    if hidden > 0:
        yield indented(text(say("more", count=hidden), "dim"))
    yield from (indented(text(note, "dim")) for note in part.notes)


def _table(table: Table, ascii_only: bool, most: int) -> RenderableType:
    from rich.table import Table as RichTable

    drawn = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    shown = [number for number, column in enumerate(table.columns) if column.kind is not ColumnKind.COMMAND]
    titles = column_titles(table.columns)
    for column, title in ((table.columns[number], titles[number]) for number in shown):
        right = column.kind is ColumnKind.NUMBER
        drawn.add_column(text(title), justify="right" if right else "left", no_wrap=right, overflow="fold")
    width = BAR if len(table.columns) <= 6 else NARROW_BAR
    for row in table.rows[:most]:
        drawn.add_row(*(_cell(row[number], width, ascii_only) for number in shown))
    return drawn


def _commands(table: Table, most: int) -> list[str]:
    """The commands of a table's rows, which stand below it: beside the other columns they could not be copied."""
    columns = [number for number, column in enumerate(table.columns) if column.kind is ColumnKind.COMMAND]
    cells = [str(row[number]) for row in table.rows[:most] for number in columns]
    return [line for cell in cells if cell for line in typed_lines(cell, WIDTH - 2)]


def typed_lines(command: str, width: int) -> list[str]:
    """A command on several lines that a shell takes for one, so that it can be copied."""
    lines = [""]
    for word in _WORD.findall(command):
        if lines[-1] and len(lines[-1]) + len(word) + 3 > width:
            lines[-1] += " \\"
            lines.append(" ")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


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

    return Text(prepared(printable(words), width), style=style, overflow="fold")


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


# Where a terminal may break a line: never before a unit, in Chinese between any two characters.
#
# rich breaks at blanks only, a no-break space included. So text is prepared before rich wraps it, and finished
# after.


_GLUE = "\ue000"  # of the private use area: one column wide, and in no text
_UNIT = re.compile(r"(?<=\d) (?=(?:%|ms|us|s|min|h|B|[KMGT]iB)(?!\w))")
# Chinese characters and marks. A closing mark stays with what it closes, an opening one with what it opens.
_WIDE = "\u2e80-\ud7ff\uff00-\uffef"
_CHINESE = re.compile(f"[{_WIDE}]")
_WRAPPED_WORD = re.compile(f"[（“]*(?:[^\\s（“{_WIDE}]+|[{_WIDE}])[，。；：、）”！？]*|\\s+")


def prepared(text: str, width: int) -> str:
    """Text that rich may wrap to a width."""
    glued = _UNIT.sub(_GLUE, text)
    return _broken(glued, width) if _CHINESE.search(glued) else glued


def finished(line: str) -> str:
    """A line that rich has made, as it is shown."""
    return line.replace(_GLUE, " ")


def folded(text: str, width: int = 100) -> str:
    """Plain text in lines of at most this width."""
    if _CHINESE.search(text):
        return _broken(text, width)
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def _broken(text: str, width: int) -> str:
    from rich.cells import cell_len

    lines = [""]
    for word in _WRAPPED_WORD.findall(text):
        if cell_len(lines[-1]) + cell_len(word.rstrip()) > width:
            lines.append("")
        begins_later_line = len(lines) > 1 and not lines[-1]
        lines[-1] += word.lstrip() if begins_later_line else word
    return "\n".join(lines)
