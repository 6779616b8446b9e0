"""The report in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

from hotlap.facts.timeline import Stage
from hotlap.ports.renderer import Renderer
from hotlap.report import advice, sheet, words
from hotlap.report import advice as rewrites
from hotlap.report.document import Document, Point
from hotlap.report.locale import Phrases
from hotlap.report.outcome import document_of
from hotlap.report.sections import build
from hotlap.report.sheet import BESIDE, SEVERITY, WIDTH, indented, labelled, text, typed_lines

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

MOST_FIXES = 3
TONES = {"good": "bold green", "warning": "bold yellow", "critical": "bold red"}
ON_THE_PAGE = "trials"  # they were told one by one as they ended
MOST_ROWS = 24  # an outcome is read once, and every row of it is a reason


class Terminal(Renderer):
    """Plain text for a pipe; `show` writes with colour where the stream is a terminal that wants it."""

    id: ClassVar[str] = "terminal"
    suffix: ClassVar[str] = ".txt"

    def render(self, view: Mapping[str, Any], lang: str = "en") -> str:
        return draw(view, lang)


def show(view: Mapping[str, Any], lang: str = "en", stream: TextIO | None = None) -> None:
    """Write the report to a stream as well as that stream can show it."""
    sheet.show(lambda colour, ascii_only: draw(view, lang, colour, ascii_only), stream)


def draw(view: Mapping[str, Any], lang: str = "en", colour: bool = False, ascii_only: bool = False) -> str:
    """The report as text."""
    document = document_of(view, Phrases(lang))
    if document is not None:
        return sheet.drawn(_outcome(document, Phrases(lang), ascii_only), colour)
    return sheet.drawn(_parts(view, Phrases(lang), ascii_only), colour)


def _parts(view: Mapping[str, Any], say: Phrases, ascii_only: bool) -> Iterable[RenderableType]:
    yield labelled("hotlap", [text(view["job"]["shown"], "dim", BESIDE)])
    yield ""
    yield labelled(say("heading.verdict"), _verdict(view, say))
    yield ""
    yield labelled(say("heading.why"), _why(view, say))
    yield ""
    yield labelled(say("heading.next"), _next(view, say))
    stages, *rest = build(view, say)
    yield from sheet.section(stages, ascii_only, say, most=len(Stage))
    yield from _others(view, say)
    yield from _rewrites(view, say)
    for section in rest:
        yield from sheet.section(section, ascii_only, say)
    yield ""
    closing = (words.ending(view, say), words.faults(view, say), say("footer.run", run=view["run_shown"]))
    yield from (text(line, "dim") for line in closing if line)


def _verdict(view: Mapping[str, Any], say: Phrases) -> list[Text]:
    finding = words.first(view)
    style = "bold green" if finding is None else SEVERITY[finding["severity"]]
    lines = [text(words.verdict(view, say), style if view["verdict"] else "bold", BESIDE)]
    if also := words.also(view, say):
        lines.append(text(also, "dim", BESIDE))
    return lines


def _why(view: Mapping[str, Any], say: Phrases) -> list[Text]:
    lines = [text(sentence, "", BESIDE) for sentence in words.why(view, say)]
    finding = words.first(view)
    if finding is not None and finding["where"] is not None:
        lines.append(text(words.where(finding, say), "bold"))
        if code := finding["where"]["code"].strip():
            lines.append(sheet.one_line(f"    {code}", "cyan", BESIDE))
    return lines


def _next(view: Mapping[str, Any], say: Phrases) -> list[Text]:
    finding = words.first(view)
    fixes = [] if finding is None else words.advised(finding)[:MOST_FIXES]
    lines = [text(words.next_step(view, say), "", BESIDE)]
    lines += [text(f"- {words.fix(each, say)}", "", BESIDE) for each in fixes]
    return lines + [_command(each.line, say(each.purpose)) for each in advice.next_commands(view)]


def _command(line: str, purpose: str) -> Text:
    """A command with what it is for, where that does not wrap: a command must stay easy to copy."""
    command = text(line, "bold")
    remark = text(f"  # {purpose}", "dim")
    return command.append_text(remark) if command.cell_len + remark.cell_len <= BESIDE else command


def _rewrites(view: Mapping[str, Any], say: Phrases) -> Iterable[RenderableType]:
    """Each change as a diff below its sentence."""
    found, others = rewrites.shown_rewrites(view, say), rewrites.lines(view, say)
    if not found and not others:
        return
    yield ""
    yield text(say("section.rewrites"), "bold")
    for each in found:
        yield indented(text(f"{each.place}  {each.sentence} {each.measured}", "", WIDTH - 2))
        yield from (indented(sheet.one_line(f"- {line}", "red", WIDTH - 4), 4) for line in each.before)
        yield from (indented(sheet.one_line(f"+ {line}", "green", WIDTH - 4), 4) for line in each.after)
    for place, code, known in others:
        yield indented(text(f"{place}  {known}", "", WIDTH - 2))
        yield indented(sheet.one_line(code, "dim", WIDTH - 4), 4)
    if closing := rewrites.rewrites_closing(view, say):
        yield indented(text(closing, "dim"))


def _others(view: Mapping[str, Any], say: Phrases) -> Iterable[RenderableType]:
    findings = words.others(view)
    if not findings:
        return
    yield ""
    yield text(say("section.others"), "bold")
    for finding in findings:
        place = words.where(finding, say)
        head = text(say.word(finding["severity"]), SEVERITY[finding["severity"]])
        yield indented(head.append_text(text(f"  {words.headline(finding, say)}")))
        reason = " ".join(filter(None, (words.evidence(finding, say), place)))
        yield indented(text(reason, "", WIDTH - 4), 4)


# Outcomes of other commands: their points beside their words, then their sections.


def _outcome(document: Document, say: Phrases, ascii_only: bool) -> Iterable[RenderableType]:
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
