"""Where the time went: stages, what came before the steady state, occasional stages, ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hotlap.facts.timeline import Stage
from hotlap.report.document import ColumnKind, Section, Table, TableColumn
from hotlap.report.locale import Phrases
from hotlap.report.words import readable

RANK_STAGES = 5  # as many columns as a terminal has room for beside the step itself


def stage_name(name: str, say: Phrases) -> str:
    """A stage as the language calls it."""
    return say(f"stage.{name}")


def held_time(view: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The stages that held any time, in the order of a step."""
    stages = view["stages"]
    return [(name, stages[name]) for name in Stage if name in stages and stages[name]["ms"] > 0]


def stages(view: Mapping[str, Any], say: Phrases) -> Section:
    """The stage table with bars, means, p50 and p95."""
    title = say("section.stages")
    if not view["stages"]:
        return Section("stages", title, (say("stages.none"),))
    columns = (
        TableColumn(say("column.stage")),
        TableColumn(say("column.share"), ColumnKind.BAR),
        TableColumn(say("column.share"), ColumnKind.NUMBER),
        TableColumn(say("column.mean"), ColumnKind.NUMBER),
        TableColumn("p50", ColumnKind.NUMBER),
        TableColumn("p95", ColumnKind.NUMBER),
    )
    return Section(
        "stages",
        title,
        table=Table(
            columns, tuple(_stage_rows(view, say)), tuple(f"stage-{name}" for name, _ in held_time(view))
        ),
        notes=_small_print(view, say),
    )


def _stage_rows(view: Mapping[str, Any], say: Phrases) -> list[tuple[str | float, ...]]:
    rows = []
    for name, each in held_time(view):
        shown = stage_name(name, say) + (" ~" if name in view["inferred"] else "")
        figures = (say.number(each[key], "ms") for key in ("ms", "p50", "p95"))
        rows.append((shown, each["share"], say.number(each["share"], "share"), *figures))
    return rows


def _small_print(view: Mapping[str, Any], say: Phrases) -> tuple[str, ...]:
    figures = {
        "coverage": view["coverage"],
        "overhead": view["overhead"],
        "per_step": view["probe"]["per_step_s"],
    }
    parts = [say("stages.coverage", figures)]
    if (view["coverage"] or 0.0) + view["stages"].get(Stage.OTHER, {}).get("share", 0.0) > 1.005:
        parts.append(say("stages.exchanges"))
    inferred = [stage_name(name, say) for name, _ in held_time(view) if name in view["inferred"]]
    if inferred:
        parts.append(say("stages.inferred", stages=", ".join(inferred)))
    if view["probe"]["dropped_steps"]:
        parts.append(say("stages.dropped", dropped=view["probe"]["dropped_steps"]))
    if (passes := view["step"]["backward_passes"]) and passes > 1:
        parts.append(say("stages.accumulation", passes=passes))
    return tuple(parts)


def warmup(view: Mapping[str, Any], say: Phrases) -> Section:
    """Start-up, warm-up and compilation, which the steady figures leave out."""
    seen = view["warmup"]
    sentence = say(
        "warmup.figures",
        startup=seen["startup_s"],
        steps=seen["steps"],
        seconds=seen["seconds"],
        compile=seen["compile_s"] or None,
        compiles=seen["compiles"] or None,
    )
    return Section("warmup", say("section.warmup"), (sentence,))


def occasional(view: Mapping[str, Any], say: Phrases) -> Section | None:
    """Validation, checkpoints and logging with their cadence, and garbage collections."""
    pauses = view["pauses"]
    sentences = (say("occasional.gc", pauses),) if pauses["count"] else ()
    if not view["cadences"]:
        return Section("occasional", say("section.occasional"), sentences) if sentences else None
    placed = any(each["place"] for each in view["cadences"])
    columns = (
        TableColumn(say("column.stage")),
        TableColumn(say("column.every"), ColumnKind.NUMBER),
        TableColumn(say("column.count"), ColumnKind.NUMBER),
        TableColumn(say("column.each"), ColumnKind.NUMBER),
        TableColumn(say("column.total"), ColumnKind.NUMBER),
        *([TableColumn(say("column.place"), ColumnKind.CODE)] if placed else []),
    )
    rows = tuple(_cadence_row(each, placed, say) for each in view["cadences"])
    return Section("occasional", say("section.occasional"), sentences, Table(columns, rows))


def _cadence_row(cadence: Mapping[str, Any], placed: bool, say: Phrases) -> tuple[str, ...]:
    every, place = cadence["every_steps"], cadence["place"]
    return (
        stage_name(cadence["stage"], say),
        say("occasional.every", steps=round(every)) if every else say("occasional.once"),
        say.number(cadence["count"], "count"),
        say.number(cadence["ms_each"], "ms"),
        say.number(cadence["seconds"], "s"),
        *([place["shown"] if place else ""] if placed else []),
    )


def ranks(view: Mapping[str, Any], say: Phrases) -> Section | None:
    """Step time of every rank, where there are several."""
    if len(view["ranks"]) < 2:
        return None
    named = _heaviest(view["ranks"])
    columns = (
        TableColumn(say("column.rank"), ColumnKind.NUMBER),
        TableColumn(say("column.step"), ColumnKind.NUMBER),
        TableColumn(say("column.own"), ColumnKind.NUMBER),
        *(TableColumn(stage_name(stage, say), ColumnKind.NUMBER) for stage in named),
        TableColumn(say("column.comm"), ColumnKind.NUMBER),
    )
    rows = tuple(_rank_row(each, named, say) for each in view["ranks"])
    return Section("ranks", say("section.ranks"), (_slowest(view, say),), Table(columns, rows))


def _heaviest(ranks: Sequence[Mapping[str, Any]]) -> list[Stage]:
    """The stages that hold most time over all ranks, in the order of a step."""
    held = {stage: sum(each["stages"].get(stage, {"ms": 0})["ms"] for each in ranks) for stage in Stage}
    most = sorted((stage for stage in Stage if held[stage] > 0), key=lambda stage: -held[stage])[:RANK_STAGES]
    return [stage for stage in Stage if stage in most]


def _rank_row(rank: Mapping[str, Any], named: list[Stage], say: Phrases) -> tuple[str, ...]:
    spent = (rank["stages"].get(stage, {"ms": None})["ms"] for stage in named)
    return (
        str(rank["rank"]),
        say.number(rank["step"]["ms_mean"], "ms"),
        say.number(rank["own_ms"], "ms"),
        *(say.number(ms, "ms") if ms else "-" for ms in spent),
        say.number(rank["comm_ms"], "ms"),
    )


def _slowest(view: Mapping[str, Any], say: Phrases) -> str:
    works = {each["rank"]: each["own_ms"] for each in view["ranks"]}
    slowest = view["slowest_rank"]
    measured = [own for own in works.values() if own is not None]
    own = works[slowest]
    return say("ranks.slowest", rank=slowest, own=own, behind=None if own is None else own - min(measured))


# The lines of source that held time, and those that made the host wait for the device.


LONGEST_CODE = 48
LEAST_SYNC = 0.001  # of the steady time: shorter ones all together are no news


def lines(view: Mapping[str, Any], say: Phrases) -> Section | None:
    """`dataset.py:366 scaler.transform - 71 % of item time`, the lines with most samples first."""
    if not view["lines"]:
        return None
    return Section("lines", say("section.lines"), tuple(line_sentence(each, say) for each in view["lines"]))


def line_sentence(line: Mapping[str, Any], say: Phrases) -> str:
    """One hot line in words."""
    place = line["place"]
    called = (
        line["callee"] if tells(line["callee"]) else clipped(place["code"]) or readable(place["function"])
    )
    if line["whole_loop"] and line["inner"]:
        called = say("lines.through", called=called, inner=readable(line["inner"]))
    time = (
        say("lines.item_time")
        if line["of"] == "item"
        else say("lines.stage_time", stage=stage_name(line["of"], say))
    )
    return say("lines.one", place=place["shown"], called=called, share=line["share"], time=time)


def tells(callee: str) -> bool:
    """Whether the called function's name says something: not `Module._wrapped_call_impl` or `__next__`."""
    return bool(callee) and not callee.rpartition(".")[2].startswith("_")


def clipped(code: str) -> str:
    """A line of source, short enough to stand in a sentence."""
    text = code.strip()
    return text if len(text) <= LONGEST_CODE else f"{text[: LONGEST_CODE - 4].rstrip()} ..."


def syncs(view: Mapping[str, Any], say: Phrases) -> Section | None:
    """Host synchronisations with their lines, longest first."""
    least = LEAST_SYNC * (view["step"]["seconds"] or 0.0)
    dear = [each for each in view["syncs"] if each["seconds"] >= least]
    if not dear:
        return None
    columns = (
        TableColumn(say("column.place"), ColumnKind.CODE),
        TableColumn(say("column.call"), ColumnKind.CODE),
        TableColumn(say("column.stage")),
        TableColumn(say("column.count"), ColumnKind.NUMBER),
        TableColumn(say("column.each"), ColumnKind.NUMBER),
        TableColumn(say("column.total"), ColumnKind.NUMBER),
    )
    rows = tuple(
        (
            each["place"]["shown"],
            each["call"],
            stage_name(each["stage"], say),
            say.number(each["count"], "count"),
            say.number(each["ms_each"], "ms"),
            say.number(each["seconds"], "s"),
        )
        for each in dear
    )
    return Section("syncs", say("section.syncs"), (), Table(columns, rows))
