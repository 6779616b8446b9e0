"""A document in the terminal: its points beside their words, then its sections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

from hotlap.report import sheet
from hotlap.report.document import Document, Point
from hotlap.report.locale import Phrases
from hotlap.report.sheet import BESIDE, labelled, text, typed_lines

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

TONES = {"good": "bold green", "warning": "bold yellow", "critical": "bold red"}
ON_THE_PAGE = "trials"  # they were told one by one as they ended
MOST_ROWS = 24  # an outcome is read once, and every row of it is a reason


def show(document: Document, say: Phrases, stream: TextIO | None = None) -> None:
    """Write a document to a stream as well as that stream can show it."""
    sheet.show(lambda colour, ascii_only: draw(document, say, colour, ascii_only), stream)


def draw(document: Document, say: Phrases, colour: bool = False, ascii_only: bool = False) -> str:
    """A document as text."""
    return sheet.drawn(_parts(document, say, ascii_only), colour)


def _parts(document: Document, say: Phrases, ascii_only: bool) -> Iterable[RenderableType]:
    yield labelled("hotlap", [text(document.command, "dim", BESIDE)])
    for number, point in enumerate(document.points):
        yield ""
        yield labelled(point.label, _lines(point, TONES.get(document.tone, "bold") if number == 0 else ""))
    for section in document.sections:
        if section.id == ON_THE_PAGE:
            continue
        yield from sheet.section(section, ascii_only, say, MOST_ROWS)
    yield ""
    yield from (text(line, "dim") for line in document.closing)


def _lines(point: Point, style: str) -> list[Text]:
    lines = [text(sentence, style, BESIDE) for sentence in point.sentences]
    return lines + [text(part, "bold") for line in point.commands for part in typed_lines(line, BESIDE)]
