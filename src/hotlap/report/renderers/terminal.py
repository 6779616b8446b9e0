"""The report in a terminal: 100 columns, readable without colour, in ASCII where there is nothing else."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

from hotlap.ports.renderer import Renderer
from hotlap.report import advice, words, wrapping
from hotlap.report.document import Kind, Section, Table, column_titles
from hotlap.report.locale import Phrases
from hotlap.report.plain import printable
from hotlap.report.sections import build

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
MOST_FIXES = 3

SEVERITY = {"critical": "bold red", "warning": "bold yellow", "note": "cyan"}


class Terminal(Renderer):
    """Plain text for a pipe; `show` writes with colour where the stream is a terminal that wants it."""

    id: ClassVar[str] = "terminal"
    suffix: ClassVar[str] = ".txt"

    def render(self, view: Mapping[str, Any], lang: str = "en") -> str:
        return draw(view, lang)


def show(view: Mapping[str, Any], lang: str = "en", stream: TextIO | None = None) -> None:
    """Write the report to a stream as well as that stream can show it."""
    out = stream or sys.stdout
    encoding = out.encoding or "utf-8"
    text = draw(view, lang, colour=wants_colour(out), ascii_only=not _encodes_bars(encoding))
    out.write(text.encode(encoding, "replace").decode(encoding))


def wants_colour(stream: TextIO) -> bool:
    """A terminal, unless the user or the terminal says otherwise (NO_COLOR, TERM=dumb)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def draw(view: Mapping[str, Any], lang: str = "en", colour: bool = False, ascii_only: bool = False) -> str:
    """The report as text."""
    from rich.console import Console

    say = Phrases(lang)
    sheet = io.StringIO()
    # `_environ`: what is drawn depends on what is asked for here, and not on COLUMNS or FORCE_COLOR.
    console = Console(
        file=sheet, width=WIDTH, force_terminal=colour, color_system="standard" if colour else None,
        highlight=False, markup=False, emoji=False, legacy_windows=False, _environ={},
    )  # fmt: skip
    for part in _parts(view, say, ascii_only):
        console.print(part)
    return _tidied(sheet.getvalue())


def _parts(view: Mapping[str, Any], say: Phrases, ascii_only: bool) -> Iterable[RenderableType]:
    yield _text(f"hotlap  {view['job']['shown']}", "dim")
    yield ""
    yield _labelled(say("heading.verdict"), _verdict(view, say))
    yield ""
    yield _labelled(say("heading.why"), _why(view, say))
    yield ""
    yield _labelled(say("heading.next"), _next(view, say))
    for section in build(view, say):
        yield from _section(section, ascii_only, say)
    yield from _others(view, say)
    yield ""
    closing = (words.ending(view, say), words.faults(view, say), say("footer.run", run=view["run"]))
    yield from (_text(line, "dim") for line in closing if line)


def _verdict(view: Mapping[str, Any], say: Phrases) -> list[Text]:
    finding = words.first(view)
    style = "bold green" if finding is None else SEVERITY[finding["severity"]]
    lines = [_text(words.verdict(view, say), style if view["verdict"] else "bold", BESIDE)]
    if also := words.also(view, say):
        lines.append(_text(also, "dim", BESIDE))
    return lines


def _why(view: Mapping[str, Any], say: Phrases) -> list[Text]:
    lines = [_text(sentence, "", BESIDE) for sentence in words.why(view, say)]
    finding = words.first(view)
    if finding is not None and finding["where"] is not None:
        lines.append(_text(words.where(finding, say), "bold"))
        if code := finding["where"]["code"].strip():
            lines.append(_text(f"    {code}", "cyan"))
    return lines


def _next(view: Mapping[str, Any], say: Phrases) -> list[Text]:
    finding = words.first(view)
    fixes = [] if finding is None else finding["fixes"][:MOST_FIXES]
    lines = [_text(words.next_step(view, say), "", BESIDE)]
    lines += [_text(f"- {words.fix(each, say)}", "", BESIDE) for each in fixes]
    return lines + [_command(each.line, say(each.purpose)) for each in advice.next_commands(view)]


def _command(line: str, purpose: str) -> Text:
    """A command with what it is for, where that does not wrap: a command must stay easy to copy."""
    command = _text(line, "bold")
    remark = _text(f"  # {purpose}", "dim")
    return command.append_text(remark) if command.cell_len + remark.cell_len <= BESIDE else command


def _section(section: Section, ascii_only: bool, say: Phrases) -> Iterable[RenderableType]:
    yield ""
    yield _text(section.title, "bold")
    most = MOST_LINES if section.id == "lines" else MOST_ROWS
    yield from (_indented(_text(sentence)) for sentence in section.sentences[:most])
    if section.table is not None:
        yield _indented(_table(section.table, ascii_only))
    hidden = max(len(section.sentences), len(section.table.rows) if section.table else 0) - most
    if hidden > 0:
        yield _indented(_text(say("more", count=hidden), "dim"))
    yield from (_indented(_text(note, "dim")) for note in section.notes)


def _table(table: Table, ascii_only: bool) -> RenderableType:
    from rich.table import Table as RichTable

    drawn = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for column, title in zip(table.columns, column_titles(table.columns), strict=True):
        right = column.kind is Kind.NUMBER
        drawn.add_column(_text(title), justify="right" if right else "left", no_wrap=right, overflow="fold")
    width = BAR if len(table.columns) <= 6 else NARROW_BAR
    for row in table.rows[:MOST_ROWS]:
        drawn.add_row(*(_cell(cell, width, ascii_only) for cell in row))
    return drawn


def _cell(cell: str | float, width: int, ascii_only: bool) -> Text:
    return _text(cell) if isinstance(cell, str) else _text(_bar(cell, width, ascii_only), "cyan")


def _bar(share: float, width: int, ascii_only: bool) -> str:
    """A share as a bar; what is not nothing gets at least one mark."""
    full = min(width, max(1 if share > 0 else 0, round(share * width)))
    return ("#" if ascii_only else "█") * full + ("." if ascii_only else "░") * (width - full)


def _others(view: Mapping[str, Any], say: Phrases) -> Iterable[RenderableType]:
    findings = words.others(view)
    if not findings:
        return
    yield ""
    yield _text(say("section.others"), "bold")
    for finding in findings:
        place = words.where(finding, say)
        head = _text(say.word(finding["severity"]), SEVERITY[finding["severity"]])
        yield _indented(head.append_text(_text(f"  {words.headline(finding, say)}")))
        reason = " ".join(filter(None, (words.evidence(finding, say), place)))
        yield _indented(_text(reason, "", WIDTH - 4), 4)


def _labelled(label: str, lines: Iterable[RenderableType]) -> RenderableType:
    from rich.console import Group
    from rich.table import Table as RichTable

    grid = RichTable.grid(padding=0)
    grid.add_column(width=LABEL)
    grid.add_column(ratio=1, overflow="fold")
    grid.expand = True
    grid.add_row(_text(label, "bold"), Group(*lines))
    return grid


def _indented(part: RenderableType, by: int = 2) -> RenderableType:
    from rich.padding import Padding

    return Padding(part, (0, 0, 0, by))


def _text(text: str, style: str = "", width: int = WIDTH - 2) -> Text:
    from rich.text import Text

    return Text(wrapping.prepared(printable(text), width), style=style, overflow="fold")


def _encodes_bars(encoding: str) -> bool:
    try:
        "█░".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _tidied(text: str) -> str:
    return "\n".join(wrapping.finished(line).rstrip() for line in text.split("\n"))
