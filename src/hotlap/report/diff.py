"""The plain data of what changed between two profiles: what `hotlap diff --json` prints and what it draws.

Every figure stands as `before` and `after`, with their `ratio` where both are there and the first is not zero.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from hotlap.facts.codec import SCHEMA
from hotlap.facts.timeline import Stage
from hotlap.report import sheet
from hotlap.report.advice import COMMANDS
from hotlap.report.document import ColumnKind, Section, Table, TableColumn
from hotlap.report.locale import Phrases
from hotlap.report.sections.time import stage_name
from hotlap.report.sheet import BESIDE, labelled, text

if TYPE_CHECKING:
    from rich.console import RenderableType


View = Mapping[str, Any]

STEP = ("ms_mean", "ms_median", "ms_p95", "n")
RATES = ("samples_per_s", "steps_per_s", "tokens_per_s")
# Facts that bear on speed. What changes by itself from run to run (free memory, process ids) is not among them.
HOST = ("system", "machine", "cpu", "cores", "ram_bytes", "shm_bytes", "start_method", "compiler")
MACHINE = ("host.machine", "host.cpu", "host.cores", "host.ram_bytes", "host.gpus")
LOADER = ("batch_size", "num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "shuffle")
MODEL = ("kind", "parameters", "dtypes", "devices", "compiled")
OPTIMIZER = ("kind", "fused", "foreach")
RUNTIME = ("framework", "threads", "autocast", "grad_scaler", "debug", "tf32", "cudnn_benchmark", "backend")


def diff_view(before: View, after: View) -> dict[str, Any]:
    """What changed from one profile's view to another's."""
    differences = _differences(before, after)
    return {
        "schema": SCHEMA,
        "before": _side(before),
        "after": _side(after),
        "step": {name: _pair(before["step"][name], after["step"][name]) for name in STEP},
        "throughput": {name: _pair(before["throughput"][name], after["throughput"][name]) for name in RATES},
        "samples_per_step": _pair(_samples_per_step(before), _samples_per_step(after)),
        "coverage": _pair(before["coverage"], after["coverage"]),
        "overhead": _pair(before["overhead"], after["overhead"]),
        "stages": _stages(before["stages"], after["stages"]),
        "findings": _findings(before["findings"], after["findings"]),
        "foreign_cpu": _pair(*((view["cpu"] or {}).get("foreign") for view in (before, after))),
        "differences": differences,
        "same_machine": not any(each["what"] in MACHINE for each in differences),
    }


def _side(view: View) -> dict[str, Any]:
    return {
        "run": view["run"],
        "run_shown": view["run_shown"],
        "command": view["job"]["shown"],
        "verdict": view["verdict"],
        "ending": view["ending"],
        "cores": view["host"]["cores"],
    }


def _pair(before: float | None, after: float | None) -> dict[str, float | None]:
    ratio = after / before if before and after is not None else None
    return {"before": before, "after": after, "ratio": ratio}


def _samples_per_step(view: View) -> float | None:
    samples, steps = view["throughput"]["samples_per_s"], view["throughput"]["steps_per_s"]
    return samples / steps if samples is not None and steps else None


def _stages(before: View, after: View) -> dict[str, Any]:
    """The stages that held time in either run, in the order of a step."""
    found = {}
    for stage in Stage:
        pairs = {
            key: _pair(*(side[stage][key] if stage in side else None for side in (before, after)))
            for key in ("ms", "share")
        }
        if pairs["ms"]["before"] or pairs["ms"]["after"]:
            found[stage.value] = pairs
    return found


def _findings(before: Iterable[View], after: Iterable[View]) -> dict[str, list[dict[str, Any]]]:
    old, new = ({each["cause"]: each for each in findings} for findings in (before, after))
    return {
        "gone": [_finding(each) for cause, each in old.items() if cause not in new],
        "appeared": [_finding(each) for cause, each in new.items() if cause not in old],
        "stayed": [
            {"cause": cause, "before": _finding(each), "after": _finding(new[cause])}
            for cause, each in old.items()
            if cause in new
        ],
    }


def _finding(finding: View) -> dict[str, Any]:
    return {key: finding[key] for key in ("cause", "severity", "share")}


def _differences(before: View, after: View) -> list[dict[str, Any]]:
    old, new = _settings(before), _settings(after)
    names = [*old, *(name for name in new if name not in old)]
    return [
        {"what": name, "before": old.get(name), "after": new.get(name)}
        for name in names
        if old.get(name) != new.get(name)
    ]


def _settings(view: View) -> dict[str, Any]:
    """What a run's speed depends on, by name."""
    loaders = [each for each in view["loaders"] if each["training"]] or view["loaders"]
    return {
        "job.command": view["job"]["shown"],
        "job.folder": view["job"]["cwd"],
        "job.ranks": len(view["ranks"]),
        **_named("loader", loaders[0] if loaders else None, LOADER),
        **_named("dataset", loaders[0]["dataset"] if loaders else None, ("kind", "length")),
        **_named("model", view["model"], MODEL),
        **_named("optimizer", view["optimizers"][0] if view["optimizers"] else None, OPTIMIZER),
        **_named("runtime", view["runtime"], RUNTIME),
        **_named("host", view["host"], HOST),
        "host.gpus": [gpu["name"] for gpu in view["host"]["gpus"]],
        **_named("version", view["host"]["versions"], sorted(view["host"]["versions"])),
    }


def _named(family: str, facts: View | None, names: Iterable[str]) -> dict[str, Any]:
    return {f"{family}.{name}": facts.get(name) for name in names} if facts is not None else {}


# What changed between two profiles, in words and tables, in the terminal.


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
        TableColumn(say("column.stage")),
        TableColumn(say("diff.before"), ColumnKind.NUMBER),
        TableColumn(say("column.share"), ColumnKind.NUMBER),
        TableColumn(say("diff.after"), ColumnKind.NUMBER),
        TableColumn(say("column.share"), ColumnKind.NUMBER),
        TableColumn(say("diff.change"), ColumnKind.NUMBER),
        TableColumn(say("diff.ratio"), ColumnKind.NUMBER),
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
        TableColumn(""),
        *(TableColumn(say(f"diff.{title}"), ColumnKind.NUMBER) for title in ("before", "after", "ratio")),
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
    columns = (
        TableColumn(""),
        TableColumn(say("diff.cause")),
        TableColumn(say("diff.before")),
        TableColumn(say("diff.after")),
    )
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
    columns = (TableColumn(""), TableColumn(say("diff.before")), TableColumn(say("diff.after")))
    return Section("differences", title, (), Table(columns, rows))


def _value(value: Any, say: Phrases) -> str:
    if isinstance(value, bool):
        return say.word("yes" if value else "no")
    if isinstance(value, list):
        return ", ".join(map(str, value)) or say("host.none")
    return "-" if value is None else str(value)
