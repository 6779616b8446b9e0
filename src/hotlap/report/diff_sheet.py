"""What changed between two profiles, in words and tables, in the terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from hotlap.report import sheet
from hotlap.report.advice import COMMANDS
from hotlap.report.document import Column, Kind, Section, Table
from hotlap.report.locale import Phrases
from hotlap.report.sections.time import stage_name
from hotlap.report.sheet import BESIDE, labelled, text

if TYPE_CHECKING:
    from rich.console import RenderableType

Diff = Mapping[str, Any]
# A batch that is only a last, partial one changes the mean by less.
SAME_SAMPLES = 0.02
SPEEDS = ("ms", "rate")  # of other figures a ratio says nothing
WHOLE = {"before": 1.0, "after": 1.0}
MOST_ROWS = 40  # of what differs: a diff has no longer form that would show the rest


def show(diff: Diff, lang: str = "en", stream: TextIO | None = None) -> None:
    """Write the diff to a stream as well as that stream can show it."""
    sheet.show(lambda colour, ascii_only: draw(diff, lang, colour, ascii_only), stream)


def draw(diff: Diff, lang: str = "en", colour: bool = False, ascii_only: bool = False) -> str:
    """The diff as text."""
    return sheet.drawn(_parts(diff, Phrases(lang), ascii_only), colour)


def _parts(diff: Diff, say: Phrases, ascii_only: bool) -> Iterable[RenderableType]:
    for side in ("before", "after"):
        run = diff[side]
        lines = [text(run["run_shown"], "bold", BESIDE), text(run["command"], "dim", BESIDE)]
        yield labelled(say(f"heading.{side}"), lines)
    yield ""
    yield labelled(say("heading.change"), [text(line, "", BESIDE) for line in change(diff, say)])
    yield ""
    yield labelled(say("heading.caution"), [text(line, "", BESIDE) for line in caution(diff, say)])
    for section in (stages(diff, say), figures(diff, say), findings(diff, say), differences(diff, say)):
        yield from sheet.section(section, ascii_only, say, MOST_ROWS)


def change(diff: Diff, say: Phrases) -> list[str]:
    """Throughput and step time, before and after: figures, and no judgement."""
    rates, step = diff["throughput"], diff["step"]
    by = "samples" if rates["samples_per_s"]["ratio"] is not None else "steps"
    lines = [say(f"diff.{by}", rates[f"{by}_per_s"]), say("diff.step", step["ms_mean"])]
    samples = diff["samples_per_step"]
    if samples["ratio"] is not None and abs(samples["ratio"] - 1) > SAME_SAMPLES:
        lines.append(say("diff.batch", samples))
    return lines


def caution(diff: Diff, say: Phrases, commands: Collection[str] = COMMANDS) -> list[str]:
    """Why these figures are no proof."""
    lines = [say("diff.no_proof", diff["step"]["n"])]
    foreign = diff["foreign_cpu"]
    if None not in (foreign["before"], foreign["after"]):
        lines.append(say("diff.foreign", foreign))
    if not diff["same_machine"]:
        lines.append(say("diff.machines"))
    if "compare" in commands:
        lines.append(say("diff.compare"))
    return lines


def stages(diff: Diff, say: Phrases) -> Section:
    """Mean time and share of each stage, before and after."""
    columns = (
        Column(say("column.stage")),
        Column(say("diff.before"), Kind.NUMBER),
        Column(say("column.share"), Kind.NUMBER),
        Column(say("diff.after"), Kind.NUMBER),
        Column(say("column.share"), Kind.NUMBER),
        Column(say("diff.change"), Kind.NUMBER),
        Column(say("diff.ratio"), Kind.NUMBER),
    )
    rows = [
        _stage_row(stage_name(name, say), each["ms"], each["share"], say)
        for name, each in diff["stages"].items()
    ]
    rows.append(_stage_row(say("column.step"), diff["step"]["ms_mean"], WHOLE, say))
    return Section("stages", say("section.stages"), (), Table(columns, tuple(rows)))


def _stage_row(name: str, ms: Diff, share: Diff, say: Phrases) -> tuple[str, ...]:
    cells = [
        say.number(each[side], written) if ms[side] else "-"
        for side in ("before", "after")
        for each, written in ((ms, "ms"), (share, "share"))
    ]
    return (name, *cells, _signed(ms, say), _ratio(ms, say))


def _signed(pair: Diff, say: Phrases) -> str:
    if None in (pair["before"], pair["after"]):
        return "-"
    grown = pair["after"] - pair["before"]
    return ("+" if grown > 0 else "") + say.number(grown, "ms")


def _ratio(pair: Diff, say: Phrases) -> str:
    return say.number(pair["ratio"], "times") if pair["ratio"] else "-"


def figures(diff: Diff, say: Phrases) -> Section:
    """The whole step, throughput, and how well both runs were seen."""
    step, rates = diff["step"], diff["throughput"]
    named = [
        ("html.step_median", step["ms_median"], "ms"),
        ("html.step_p95", step["ms_p95"], "ms"),
        *((f"html.{name}", pair, "rate") for name, pair in rates.items()),
        ("diff.steady_steps", step["n"], "count"),
        ("diff.coverage", diff["coverage"], "share"),
        ("html.overhead", diff["overhead"], "share"),
    ]
    rows = tuple(
        (
            say(key),
            *(say.number(pair[side], written) for side in ("before", "after")),
            _ratio(pair, say) if written in SPEEDS else "",
        )
        for key, pair, written in named
        if (pair["before"], pair["after"]) != (None, None)
    )
    columns = (
        Column(""),
        *(Column(say(f"diff.{title}"), Kind.NUMBER) for title in ("before", "after", "ratio")),
    )
    return Section("figures", say("section.figures"), (), Table(columns, rows))


def findings(diff: Diff, say: Phrases) -> Section:
    """Which findings went, which appeared, which stayed."""
    found = diff["findings"]
    rows = [(say("diff.gone"), each["cause"], _weight(each, say), "-") for each in found["gone"]]
    rows += [(say("diff.appeared"), each["cause"], "-", _weight(each, say)) for each in found["appeared"]]
    rows += [
        (say("diff.stayed"), each["cause"], _weight(each["before"], say), _weight(each["after"], say))
        for each in found["stayed"]
    ]
    if not rows:
        return Section("findings", say("section.findings"), (say("diff.no_findings"),))
    columns = (Column(""), Column(say("diff.cause")), Column(say("diff.before")), Column(say("diff.after")))
    return Section("findings", say("section.findings"), (), Table(columns, tuple(rows)))


def _weight(finding: Diff, say: Phrases) -> str:
    return say("diff.weight", severity=finding["severity"], share=finding["share"] or None)


def differences(diff: Diff, say: Phrases) -> Section:
    """What of the job and the machine is not the same."""
    title = say("section.differences")
    if not diff["differences"]:
        return Section("differences", title, (say("diff.no_differences"),))
    rows = tuple(
        (say.word(each["what"], "differs"), _value(each["before"], say), _value(each["after"], say))
        for each in diff["differences"]
    )
    columns = (Column(""), Column(say("diff.before")), Column(say("diff.after")))
    return Section("differences", title, (), Table(columns, rows))


def _value(value: Any, say: Phrases) -> str:
    if isinstance(value, bool):
        return say.word("yes" if value else "no")
    if isinstance(value, list):
        return ", ".join(map(str, value)) or say("host.none")
    return "-" if value is None else str(value)
