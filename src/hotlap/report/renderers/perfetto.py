"""A trace for ui.perfetto.dev or chrome://tracing: each step with its stages, a process per rank.

The timeline knows how long each stage of a step was exposed, not when: stages are laid out in a step's order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from hotlap.facts.timeline import Stage
from hotlap.ports.renderer import Renderer
from hotlap.report.locale import Phrases

STEPS_ROW, STAGES_ROW = 1, 2
Event = dict[str, Any]


class Perfetto(Renderer):
    """Chrome's trace event format. Its size is bounded by the steps that the view keeps single."""

    id: ClassVar[str] = "perfetto"
    suffix: ClassVar[str] = ".trace.json"

    def render(self, view: Mapping[str, Any], lang: str = "en") -> str:
        say = Phrases(lang)
        ranks = sorted(view["trace"], key=lambda rank: rank["rank"])
        events = [event for rank in ranks for event in _rank(rank, say)]
        events += _counters(view, say)
        about = {
            "command": view["job"]["shown"],
            "run": view["run"],
            "steps_left_out": {str(rank["rank"]): rank["left_out"] for rank in ranks},
            "note": say("trace.note"),
        }
        trace = {"displayTimeUnit": "ms", "otherData": about, "traceEvents": events}
        return json.dumps(trace, separators=(",", ":")) + "\n"


def _rank(rank: Mapping[str, Any], say: Phrases) -> Iterable[Event]:
    number = rank["rank"]
    yield _named("process_name", number, 0, f"rank {number} (pid {rank['pid']})")
    yield _named("thread_name", number, STEPS_ROW, say("trace.steps"))
    yield _named("thread_name", number, STAGES_ROW, say("trace.stages"))
    present = [stage for stage in Stage if stage in rank["stages"]]
    for index, step in enumerate(rank["step"]):
        start = rank["start"][index]
        yield _slice(say("trace.step", step=step), number, STEPS_ROW, start, rank["wall"][index])
        for stage in present:
            if spent := rank["stages"][stage][index]:
                yield _slice(say(f"stage.{stage}"), number, STAGES_ROW, start, spent)
                start += spent


def _counters(view: Mapping[str, Any], say: Phrases) -> Iterable[Event]:
    gauges = view["gauges"]
    if gauges is None:
        return
    pace = view["trace"][0]["rank"]
    for index, seconds in enumerate(gauges["t_s"]):
        moment = {"ph": "C", "pid": pace, "ts": seconds * 1e6}
        yield {**moment, "name": say("html.rss"), "args": {"MiB": gauges["rss"][index] / 2**20}}
        cores = {"main": gauges["cpu"], "workers": gauges["workers_cpu"], "foreign": gauges["foreign_cpu"]}
        used = {name: values[index] for name, values in cores.items() if values}
        yield {**moment, "name": "CPU", "args": used}


def _named(what: str, rank: int, row: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": rank, "tid": row, "args": {"name": name}}


def _slice(name: str, rank: int, row: int, start: int, spent: int) -> Event:
    """Microseconds, with the nanoseconds as decimals."""
    where = {"ph": "X", "cat": "hotlap", "pid": rank, "tid": row}
    return {**where, "name": name, "ts": start / 1e3, "dur": spent / 1e3}
