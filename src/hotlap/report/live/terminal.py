"""A live view in a terminal: drawn anew once a second, in place where the terminal can do that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hotlap.report import sheet
from hotlap.report.live.picture import Picture, picture
from hotlap.report.locale import Phrases
from hotlap.report.sheet import BESIDE, labelled, text

if TYPE_CHECKING:
    from rich.console import RenderableType

_TONES = {"good": "bold green", "warning": "bold yellow", "critical": "bold red", "none": "bold"}
_SPARKS = "▁▂▃▄▅▆▇█"
_MOST_SPARKS = 60
_PROGRESS = 40


def draw(view: Mapping[str, Any], lang: str = "en", colour: bool = False, ascii_only: bool = False) -> str:
    """One look, as text."""
    say = Phrases(lang)
    return sheet.drawn(_parts(picture(view, say), say, ascii_only), colour)


def _parts(seen: Picture, say: Phrases, ascii_only: bool) -> Iterable[RenderableType]:
    lines = [
        text(seen.command, "dim", BESIDE),
        text(seen.state, "bold" if seen.alarm else _TONES[seen.tone], BESIDE),
    ]
    if seen.alarm:
        lines.append(text(seen.alarm, _TONES[seen.tone], BESIDE))
    yield labelled("hotlap", lines)
    yield ""
    yield text("   ".join(f"{figure} {label}" for figure, label in seen.figures), "bold")
    bar = "" if seen.share is None else sheet.bar(seen.share, _PROGRESS, ascii_only) + "  "
    yield text(f"{bar}{seen.progress}")
    for section in seen.sections:
        yield from sheet.section(section, ascii_only, say, most=16)
        if section.id == "speed" and len(seen.speeds) > 1 and not ascii_only:
            yield sheet.indented(text(sparks(seen.speeds), "cyan"))
    yield ""
    yield text(seen.closing, "dim")


def sparks(values: tuple[float, ...]) -> str:
    """The last values as small bars, from nothing to the largest."""
    shown = values[-_MOST_SPARKS:]
    most = max(shown) or 1.0
    return "".join(_SPARKS[min(7, max(0, int(value / most * 7.999)))] for value in shown)
