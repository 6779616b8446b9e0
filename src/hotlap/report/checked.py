"""A check against a baseline as plain data (`hotlap baseline check --json`) and as a document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotlap.facts import codec
from hotlap.facts.baseline import Baseline, Checked, Standing
from hotlap.facts.rewrite import shown_setting
from hotlap.report.document import ColumnKind, Document, Point, Section, Table, TableColumn
from hotlap.report.locale import Phrases
from hotlap.report.words import translated

KIND = "baseline-check"
_TONES = {Standing.SLOWER: "critical", Standing.NOT_DECIDED: "warning"}
_FIGURES = (
    ("throughput", "rate"),
    ("step_ms", "ms"),
    ("data_ms", "ms"),
    ("utilisation", "share"),
    ("memory_bytes", "size"),
)

DISTURBED = 0.5  # cores in use by others: a baseline of such runs is no measure

View = Mapping[str, Any]


def saved_view(baseline: Baseline, path: str) -> dict[str, Any]:
    """What `hotlap baseline save --json` prints."""
    return {
        "schema": codec.SCHEMA,
        "kind": "baseline",
        "file": path,
        "baseline": codec.to_plain(baseline),
    }


def saved_lines(baseline: Baseline, path: str, say: Phrases) -> list[str]:
    """That it was saved, where, and what; and whether others were at work meanwhile."""
    foreign = baseline.figures.foreign_cores
    disturbed = [say("checked.disturbed", cores=foreign)] if foreign and foreign >= DISTURBED else []
    saved = say(
        "checked.saved",
        file=path,
        rate=baseline.figures.throughput,
        counts=baseline.figures.counts,
        runs=len(baseline.rates),
        host=baseline.machine.named,
        plan=baseline.plan,
    )
    return [saved, *_refused(baseline.settings, baseline.refused, say), *disturbed]


def checked_view(checked: Checked) -> dict[str, Any]:
    """All facts of the check."""
    before, after = checked.before, checked.after
    return {
        "schema": codec.SCHEMA,
        "kind": KIND,
        "command": after.command,
        "host": after.machine.named,
        "versions_changed": _changed(before.versions, after.versions),
        "settings_changed": _changed(before.settings, after.settings),
        **codec.to_plain(checked),
    }


def _changed(before: View, after: View) -> dict[str, list[Any]]:
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {name: [before.get(name), after.get(name)] for name in names}


def document(view: View, say: Phrases) -> Document:
    """Verdict, why, the machine's part, and the figures of both days."""
    return Document(
        title=say("checked.title"),
        command=view["command"],
        tone=_TONES.get(view["standing"], "good"),
        points=(
            Point(say("heading.verdict"), (_verdict(view, say),)),
            Point(say("heading.why"), (say("checked.why", reason=translated(view["reason"], say)),)),
            Point(say("heading.host"), _host(view, say)),
            *((Point(say("heading.plan"), _plan(view, say)),) if view["after"]["plan"] else ()),
        ),
        sections=(_figures(view, say),),
        closing=(say("checked.honest"),),
    )


def _verdict(view: View, say: Phrases) -> str:
    ratio = view["ratio"]
    return say(
        "checked.verdict",
        ratio["interval"],
        standing=view["standing"],
        value=ratio["value"],
        tolerance=view["tolerance"],
    )


def _host(view: View, say: Phrases) -> tuple[str, ...]:
    lines = [say("checked.host", host=view["host"])]
    if view["drift"]:
        beside = view["beside"]
        lines.append(say("checked.drift", value=view["drift"]["value"], **view["drift"]["interval"]))
        lines.append(say("checked.beside", value=beside["value"], **beside["interval"]))
    else:
        lines.append(say("checked.no_drift"))
    lines += [
        say("checked.version", name=name, before=pair[0], after=pair[1])
        for name, pair in view["versions_changed"].items()
    ]
    return tuple(lines)


def _plan(view: View, say: Phrases) -> tuple[str, ...]:
    """Which, what of it has changed since, and what could not act."""
    after, unset = view["after"], say("checked.unset")
    settings = ", ".join(shown_setting(*pair) for pair in after["settings"].items())
    changed = [
        say("checked.version", name=name, before=_shown(pair[0], unset), after=_shown(pair[1], unset))
        for name, pair in view["settings_changed"].items()
    ]
    named = say("checked.plan", plan=after["plan"], settings=settings or unset)
    return (named, *changed, *_refused(after["settings"], after["refused"], say))


def _shown(value: Any, unset: str) -> str:
    return unset if value is None else str(value)


def _refused(settings: View, refused: View, say: Phrases) -> list[str]:
    """Settings of the plan that did nothing: what was measured is the job without them."""
    return [
        say("checked.refused", setting=shown_setting(knob, settings.get(knob)), reason=reason)
        for knob, reason in refused.items()
    ]


def _figures(view: View, say: Phrases) -> Section:
    before, after = view["before"], view["after"]
    counts = say.word(before["figures"]["counts"])
    rows = [
        (
            f"{counts}/s" if name == "throughput" else say(f"checked.{name}"),
            *(say.number(side["figures"][name], written) for side in (before, after)),
        )
        for name, written in _FIGURES
    ]
    rows.append((say("column.runs"), *(str(len(side["rates"])) for side in (before, after))))
    columns = (
        TableColumn(""),
        TableColumn(f"{say('column.before')}, {before['saved']}", ColumnKind.NUMBER),
        TableColumn(f"{say('column.after')}, {after['saved']}", ColumnKind.NUMBER),
    )
    return Section("figures", say("section.figures"), (), Table(columns, tuple(rows)))
