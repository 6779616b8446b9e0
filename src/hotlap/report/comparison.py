"""A comparison as plain data (`hotlap compare --json`) and as a table that fits into a README."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from hotlap.facts.codec import SCHEMA
from hotlap.facts.trial import Figures, Status, Trial

MIB = 1 << 20
_HEAD = ("variant", "throughput", "ratio (99 % interval)", "data wait", "busy", "memory", "runs")


def comparison_view(
    host: str,
    command: str,
    trials: Mapping[str, Sequence[Trial]],
    ratios: Mapping[str, tuple[float, float, float] | None],
) -> dict[str, Any]:
    """Medians over the runs of each variant; None where nothing was measured."""
    rows = [_row(name, runs, ratios.get(name)) for name, runs in trials.items()]
    return {"schema": SCHEMA, "host": host, "command": command, "variants": rows}


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
        "utilisation": _middle(done, "utilisation"),
        "memory_bytes": _middle(done, "memory_bytes"),
        "foreign_cores": _middle(done, "foreign_cores"),
        "ratio": {"value": ratio[0], "low": ratio[1], "high": ratio[2]} if ratio else None,
        "failed": failed.reason if failed else None,
    }


def _middle(done: Sequence[Figures], name: str) -> float | None:
    values = [value for each in done if (value := getattr(each, name)) is not None]
    return median(values) if values else None


def markdown(view: Mapping[str, Any]) -> str:
    """The table, with the host and the command below it: every speed-up names its baseline."""
    rows = [_HEAD, *(_cells(row, first=index == 0) for index, row in enumerate(view["variants"]))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, _line(tuple("-" * width for width in widths), widths))
    foreign = [row["foreign_cores"] for row in view["variants"] if row["foreign_cores"] is not None]
    others = f"; other processes used up to {max(foreign):.1f} cores" if foreign else ""
    return "\n".join(
        [*lines, "", f"{view['command']} on {view['host']}, in turn, in fresh processes{others}."]
    )


def _cells(row: Mapping[str, Any], *, first: bool) -> tuple[str, ...]:
    if row["throughput"] is None:
        return (row["name"], "failed", "-", "-", "-", "-", str(row["runs"]))
    ratio = row["ratio"]
    return (
        row["name"],
        f"{row['throughput']:,.4g} {row['counts']}/s",
        "1"
        if first
        else f"{ratio['value']:.3g} ({ratio['low']:.3g} to {ratio['high']:.3g})"
        if ratio
        else "-",
        f"{row['data_ms']:.3g} ms a step",
        f"{row['utilisation']:.0%}",
        f"{row['memory_bytes'] / MIB:,.0f} MiB" if row["memory_bytes"] else "-",
        str(row["runs"]),
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


def slower_than(view: Mapping[str, Any], share: float) -> list[str]:
    """Variants that are surely slower than the first, and by more than this share."""
    return [
        row["name"]
        for row in view["variants"]
        if row["ratio"] and row["ratio"]["high"] < 1.0 and row["ratio"]["value"] < 1.0 - share
    ]
