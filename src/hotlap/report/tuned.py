"""What a search for a plan found, as plain data and as text: what was kept, what was not and why, and the guard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hotlap.facts import codec
from hotlap.facts.diagnosis import Interval
from hotlap.facts.verdict import Gain, Ruling, Tuning, Verdict

_HEAD = ("setting", "verdict", "measured gain", "predicted", "guides promise", "guard")


def tuning_view(tuning: Tuning, folder: str, command: str) -> dict[str, Any]:
    """All facts of the search."""
    return {"schema": codec.SCHEMA, "run": folder, "command": command, **codec.to_plain(tuning)}


def text(tuning: Tuning, folder: str, command: str) -> str:
    """Verdict, why and next first; then the tables."""
    return "\n".join(
        [*_headline(tuning), "", *_next(tuning, folder, command), "", *_table(tuning), *_alone(tuning)]
    )


def trial_line(number: int, settings: Mapping[str, Any], result: str, seconds: float, left: str) -> str:
    """One trial as it ends."""
    named = ", ".join(f"{key}={value}" for key, value in settings.items()) or "the script as it is"
    return f"trial {number:3}  {result:<28}  {seconds:5.0f} s  {named}{left}"


def _headline(tuning: Tuning) -> list[str]:
    base = tuning.baseline
    if not tuning.plan.settings:
        return [
            f"Verdict  nothing that was tried makes this job faster: {base.throughput:,.4g} {base.counts}/s.",
            f"Why      {tuning.ended}; {tuning.trials} trials in {tuning.seconds:.0f} s.",
        ]
    tuned = tuning.tuned or base
    gain = tuning.gain
    times = f"{gain.value + 1:.3g} times ({_times(gain.interval)})" if gain else "not measured once more"
    guard = tuning.guard
    return [
        f"Verdict  {times} as fast: {base.throughput:,.4g} to {tuned.throughput:,.4g} {base.counts}/s.",
        f"Why      a step waited {base.data_ms:.3g} ms for data and waits {tuned.data_ms:.3g} ms now; "
        f"{tuning.trials} trials in {tuning.seconds:.0f} s; {tuning.ended}.",
        f"Guard    {guard.sameness.value}: {guard.reason}." if guard else "Guard    not asked.",
    ]


def _next(tuning: Tuning, folder: str, command: str) -> list[str]:
    if not tuning.plan.settings:
        return ["Next     hotlap profile shows where its time goes."]
    return [f"Next     hotlap run --plan {folder}/plan.yaml {command}"]


def _table(tuning: Tuning) -> list[str]:
    rows = [_HEAD, *(_row(verdict) for verdict in tuning.verdicts)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = []
    for row, verdict in zip(rows, (None, *tuning.verdicts), strict=True):
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        lines += [f"    {note}" for note in _notes(verdict)] if verdict else []
    return lines


def _row(verdict: Verdict) -> tuple[str, ...]:
    guard = verdict.guard
    return (
        f"{verdict.knob}={verdict.setting}",
        verdict.ruling.value,
        _gain(verdict.gain),
        f"{verdict.predicted:+.0%}" if verdict.predicted is not None else "-",
        f"{verdict.promise[0]:+.0%} to {verdict.promise[1]:+.0%}" if verdict.promise else "-",
        guard.sameness.value if guard else "-",
    )


def _notes(verdict: Verdict) -> Sequence[str]:
    notes = [verdict.reason] if verdict.ruling is not Ruling.KEEP and verdict.reason else []
    if verdict.break_even_steps:
        notes.append(f"compiling is paid back after {verdict.break_even_steps:,} steps")
    return notes


def _alone(tuning: Tuning) -> list[str]:
    if not tuning.alone:
        return []
    lines = ["", "each kept setting alone"]
    lines += [f"  {knob:24} {_gain(gain)}" for knob, gain in tuning.alone.items()]
    return [*lines, f"  {'all together':24} {_gain(tuning.gain)}"]


def _gain(gain: Gain | None) -> str:
    if gain is None:
        return "-"
    return f"{gain.value:+.0%} ({gain.interval.low:+.0%} to {gain.interval.high:+.0%})"


def _times(interval: Interval) -> str:
    return f"{interval.low + 1:.3g} to {interval.high + 1:.3g}"
