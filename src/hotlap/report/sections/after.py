"""What was measured after the window: steps whose input is free, and operators under torch.profiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hotlap.report.document import Column, Kind, Section, Table
from hotlap.report.locale import Phrases

LEAST_GAIN = 0.01  # less than that is no news but this: input does not hold the run back
LEAST_SHARE = 0.001


def free_input(view: Mapping[str, Any], say: Phrases) -> Section | None:
    """What a step takes on a replayed batch, and the gain that no fix of input can exceed."""
    seen = view["free_input"]
    if seen is None:
        return None
    sentence = say(f"free_input.{_kind(seen)}", seen, now=view["step"]["ms_mean"])
    notes, table = [say("free_input.note")], _rehearsed(view["rehearsals"], say)
    if table is not None:
        notes.append(say("free_input.rehearsed"))
    return Section("free_input", say("section.free_input"), (sentence,), table, tuple(notes))


def _rehearsed(rehearsals: Sequence[Mapping[str, Any]], say: Phrases) -> Table | None:
    columns = [
        Column(say(f"column.{each}"), Kind.NUMBER) for each in ("rehearsed_workers", "step", "throughput")
    ]
    rows = tuple(
        (
            say.number(each["workers"], ""),
            say.number(each["step_ms"], "ms"),
            say.number(each["gain"], "gain"),
        )
        for each in rehearsals
    )
    return Table(tuple(columns), rows) if rows else None


def _kind(seen: Mapping[str, Any]) -> str:
    if seen["disturbed"]:
        return "disturbed"
    return "gain" if seen["gain"] >= LEAST_GAIN else "none"


def operators(view: Mapping[str, Any], say: Phrases) -> Section | None:
    """The operators that took most time, with their sizes, and what kinds they are of."""
    seen = view["ops"]
    if seen is None:
        return None
    columns = (
        Column(say("column.operator"), Kind.CODE),
        Column(say("column.share"), Kind.NUMBER),
        Column(say("column.calls"), Kind.NUMBER),
        Column(say("column.dtype"), Kind.CODE),
        Column(say("column.shapes"), Kind.CODE),
    )
    rows = tuple(
        (
            each["name"],
            say.number(each["share"], "share"),
            say.number(each["calls"], ""),
            each["dtype"],
            each["shapes"],
        )
        for each in seen["top"]
        if each["share"] >= LEAST_SHARE
    )
    notes = [say("operators.note")]
    if view["ops_trace"] is not None:
        notes.append(say("operators.trace", trace=view["ops_trace"]))
    sentences = (say("operators.kinds", seen), *_device(seen, say))
    return Section("operators", say("section.operators"), sentences, Table(columns, rows), tuple(notes))


def _device(seen: Mapping[str, Any], say: Phrases) -> tuple[str, ...]:
    idle = seen["device_idle"]
    return () if idle is None else (say("operators.idle", idle=idle),)
