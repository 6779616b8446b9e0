"""The report for a pull request: verdict, why and next on top, the stage table, the rest folded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from hotlap.ports.renderer import Renderer
from hotlap.report import advice, words
from hotlap.report import advice as rewrites
from hotlap.report.document import ColumnKind, Document, Section, Table, printable
from hotlap.report.locale import Phrases
from hotlap.report.outcome import document_of
from hotlap.report.sections import build
from hotlap.report.sections.machine import host

BAR = 20
UNFOLDED = ("tried",)
_SPECIAL = re.compile(r"([\\`*_\[\]|~#])")


class Markdown(Renderer):
    """GitHub's flavour: tables, `<details>`."""

    id: ClassVar[str] = "markdown"
    suffix: ClassVar[str] = ".md"

    def render(self, view: Mapping[str, Any], lang: str = "en") -> str:
        say = Phrases(lang)
        document = document_of(view, say)
        if document is not None:
            return "\n\n".join(_outcome(document)) + "\n"
        stages, *rest = build(view, say)
        blocks = [
            f"### hotlap: {escaped(words.verdict(view, say))}",
            code(view["job"]["shown"]),
            *_why(view, say),
            *_next(view, say),
            *_section(stages),
            *_rewrites(view, say),
            *(block for section in rest if section.id in UNFOLDED for block in _section(section)),
        ]
        folded = [section for section in rest if section.id not in UNFOLDED]
        for section in (*folded, _others(view, say), host(view, say)):
            if section is not None:
                blocks.append("\n\n".join(_folded(section)))
        blocks += [escaped(line) for line in (words.ending(view, say), words.faults(view, say)) if line]
        return "\n\n".join(blocks) + "\n"


def _rewrites(view: Mapping[str, Any], say: Phrases) -> Iterable[str]:
    found, others = rewrites.shown_rewrites(view, say), rewrites.lines(view, say)
    if not found and not others:
        return
    yield f"#### {escaped(say('section.rewrites'))}"
    for each in found:
        yield f"{code(each.place)} {escaped(each.sentence)} {escaped(each.measured)}"
        if each.diff:
            body = "\n".join(printable(line) for line in each.diff.splitlines())
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", body)), default=0))
            yield f"{fence}diff\n{body}\n{fence}"
    for place, line, known in others:
        yield f"{code(place)} {code(line)} {escaped(known)}"
    if closing := rewrites.rewrites_closing(view, say):
        yield escaped(closing)


def _outcome(document: Document) -> Iterable[str]:
    verdict, *points = document.points
    yield f"### hotlap: {' '.join(escaped(each) for each in verdict.sentences)}"
    yield code(document.command)
    for point in points:
        lines = [*map(escaped, point.sentences), *map(code, point.commands)]
        yield f"**{escaped(point.label)}** " + "  \n".join(lines)
    for section in document.sections:
        yield from _section(section)
    yield from map(escaped, document.closing)


def escaped(text: str) -> str:
    """Text that is shown as it is and opens no tag, link, emphasis or table column."""
    plain = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", plain)


def code(text: str) -> str:
    """A code span that no backtick of the text can end."""
    plain = printable(text)
    longest = max((len(run) for run in re.findall(r"`+", plain)), default=0)
    fence = "`" * (longest + 1)
    blank = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{blank}{plain}{blank}{fence}"


def _why(view: Mapping[str, Any], say: Phrases) -> Iterable[str]:
    yield f"**{say('heading.why')}** " + " ".join(escaped(sentence) for sentence in words.why(view, say))
    finding = words.first(view)
    if finding is not None and finding["where"] is not None:
        line = finding["where"]["code"].strip()
        yield code(finding["where"]["shown"]) + (f": {code(line)}" if line else "")
    if also := words.also(view, say):
        yield escaped(also)


def _next(view: Mapping[str, Any], say: Phrases) -> Iterable[str]:
    finding = words.first(view)
    yield f"**{say('heading.next')}** {escaped(words.next_step(view, say))}"
    points = [escaped(words.fix(each, say)) for each in words.advised(finding)] if finding else []
    points += [f"{code(each.line)}: {escaped(say(each.purpose))}" for each in advice.next_commands(view)]
    yield "\n".join(f"- {point}" for point in points)


def _section(section: Section) -> Iterable[str]:
    yield f"**{escaped(section.title)}**"
    yield from _body(section)


def _folded(section: Section) -> Iterable[str]:
    yield f"<details><summary>{escaped(section.title)}</summary>"
    yield from _body(section)
    yield "</details>"


def _body(section: Section) -> Iterable[str]:
    if section.sentences:
        yield "\n".join(f"- {escaped(sentence)}" for sentence in section.sentences)
    if section.table is not None:
        yield _table(section.table)
    if section.notes:
        yield f"<sub>{' '.join(escaped(note) for note in section.notes)}</sub>"


def _table(table: Table) -> str:
    rule = ("--:" if column.kind is ColumnKind.NUMBER else "---" for column in table.columns)
    heads = ("" if column.kind is ColumnKind.BAR else escaped(column.title) for column in table.columns)
    rows = [
        [_cell(cell, column.kind) for cell, column in zip(row, table.columns, strict=True)]
        for row in table.rows
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows))


def _cell(cell: str | float, kind: ColumnKind) -> str:
    if not isinstance(cell, str):
        return "█" * round(min(1.0, cell) * BAR)
    # A bar ends a column even inside a code span, unless it is escaped.
    return (
        code(cell).replace("|", "\\|")
        if kind in (ColumnKind.CODE, ColumnKind.COMMAND) and cell
        else escaped(cell)
    )


def _others(view: Mapping[str, Any], say: Phrases) -> Section | None:
    sentences = tuple(
        " ".join(filter(None, (words.headline(each, say), words.evidence(each, say), words.where(each, say))))
        for each in words.others(view)
    )
    return Section("others", say("section.others"), sentences) if sentences else None
