"""The lines of source that held time, and those that made the host wait for the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotlap.report.document import Column, Kind, Section, Table
from hotlap.report.locale import Phrases
from hotlap.report.sections.time import stage_name
from hotlap.report.words import readable

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
        Column(say("column.place"), Kind.CODE),
        Column(say("column.call"), Kind.CODE),
        Column(say("column.stage")),
        Column(say("column.count"), Kind.NUMBER),
        Column(say("column.each"), Kind.NUMBER),
        Column(say("column.total"), Kind.NUMBER),
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
