"""A comparison as plain data (`hotlap compare --json`), as a table that fits into a README, and as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from hotlap.facts.codec import SCHEMA
from hotlap.facts.trial import TOKENS, Figures, Status, Trial
from hotlap.report.document import ColumnKind, Document, Point, Section, Table, TableColumn
from hotlap.report.locale import Phrases
from hotlap.report.sheet import folded

KIND = "comparison"
_COLUMNS = ("variant", "throughput", "ratio", "data_batch", "utilisation", "memory", "runs")

View = Mapping[str, Any]


def comparison_view(
    host: str,
    command: str,
    trials: Mapping[str, Sequence[Trial]],
    ratios: Mapping[str, tuple[float, float, float] | None],
    *,
    sliced: bool = False,
    obstacle: str = "",
) -> dict[str, Any]:
    """Medians over the runs of each variant; None where nothing was measured. `sliced`: they ran at once, in slices;
    `obstacle` is what kept them from it."""
    rows = [_row(name, runs, ratios.get(name)) for name, runs in trials.items()]
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "host": host,
        "command": command,
        "sliced": sliced,
        "obstacle": obstacle or None,
        "variants": rows,
    }


def _row(name: str, runs: Sequence[Trial], ratio: tuple[float, float, float] | None) -> dict[str, Any]:
    done = [trial.figures for trial in runs if trial.status is Status.DONE and trial.figures is not None]
    failed = next((trial for trial in runs if trial.status is not Status.DONE), None)
    return {
        "name": name,
        "settings": dict(runs[0].plan.settings) if runs else {},
        "runs": len(done),
        "counts": done[0].counts if done else None,
        "throughput": _middle(done, "throughput"),
        "step_ms": _middle(done, "step_ms"),
        "data_ms": _middle(done, "data_ms"),
        "data_ms_per_batch": _per_batch(done),
        "utilisation": _middle(done, "utilisation"),
        "gpu_busy": _middle(done, "gpu_busy"),
        "memory_bytes": _middle(done, "memory_bytes"),
        "foreign_cores": _middle(done, "foreign_cores"),
        "ratio": {"value": ratio[0], "low": ratio[1], "high": ratio[2]} if ratio else None,
        "failed": failed.reason if failed else None,
    }


def _middle(done: Sequence[Figures], name: str) -> float | None:
    values = [value for each in done if (value := getattr(each, name)) is not None]
    return median(values) if values else None


def _per_batch(done: Sequence[Figures]) -> float | None:
    """A step that accumulates gradients waits for several batches."""
    waits = [each.data_ms / each.batches_per_step for each in done if each.batches_per_step]
    return median(waits) if waits else None


def slower_than(view: View, share: float) -> list[str]:
    """Variants that are surely slower than the first, and by more than this share."""
    return [
        row["name"]
        for row in view["variants"]
        if row["ratio"] and row["ratio"]["high"] < 1.0 and row["ratio"]["value"] < 1.0 - share
    ]


def markdown(view: View, lang: str = "en") -> str:
    """The table for a README, with the host and the command below it: every speed-up names its baseline."""
    say = Phrases(lang)
    found = _table(view, say)
    rows = [tuple(column.title for column in found.columns), *(tuple(map(str, row)) for row in found.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, _line(tuple("-" * width for width in widths), widths))
    return "\n".join([*lines, "", *(folded(each) for each in _small_print(view, say))])


def document(view: View, say: Phrases) -> Document:
    """The comparison for a report."""
    section = Section("comparison", say("section.comparison"), (), _table(view, say), _small_print(view, say))
    verdicts = tuple(_verdict(row, view["variants"][0]["name"], say) for row in view["variants"][1:])
    return Document(
        title=say("compared.title"),
        command=view["command"],
        tone="none",
        points=(Point(say("heading.verdict"), verdicts),),
        sections=(section,),
    )


def _verdict(row: View, first: str, say: Phrases) -> str:
    ratio = row["ratio"]
    if ratio is None:
        return say("compared.failed" if row["failed"] else "compared.unknown", row)
    differs = not ratio["low"] <= 1.0 <= ratio["high"]
    key = "compared.no_difference" if not differs else "compared.ratio"
    return say(key, ratio, name=row["name"], first=first)


def _table(view: View, say: Phrases) -> Table:
    columns = tuple(
        TableColumn(say(f"column.{name}"), ColumnKind.TEXT if name == "variant" else ColumnKind.NUMBER)
        for name in _COLUMNS
    )
    return Table(columns, tuple(_cells(row, index == 0, say) for index, row in enumerate(view["variants"])))


def _cells(row: View, first: bool, say: Phrases) -> tuple[str, ...]:
    if row["throughput"] is None:
        return (row["name"], say("compared.dead"), "-", "-", "-", "-", str(row["runs"]))
    return (
        row["name"],
        f"{say.number(row['throughput'], 'rate')} {say.word(row['counts'])}/s",
        "1" if first else say("compared.interval", row["ratio"]) if row["ratio"] else "-",
        say.number(row["data_ms_per_batch"], "ms") if row["data_ms_per_batch"] is not None else "-",
        say("compared.busy", row),
        say.number(row["memory_bytes"], "size") if row["memory_bytes"] else "-",
        str(row["runs"]),
    )


def _small_print(view: View, say: Phrases) -> tuple[str, ...]:
    foreign = [row["foreign_cores"] for row in view["variants"] if row["foreign_cores"] is not None]
    where = say("compared.where", command=view["command"], host=view["host"])
    broken = [say("compared.failed", row) for row in view["variants"] if row["failed"]]
    others = say("compared.others", cores=max(foreign)) if foreign else ""
    tokens = any(row["counts"] == TOKENS for row in view["variants"])
    counted = say("compared.tokens") if tokens else ""
    columns = say("compared.sliced" if view.get("sliced") else "compared.columns")
    return tuple(each for each in (where, columns, counted, others, *broken) if each)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"
