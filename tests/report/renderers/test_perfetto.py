"""The trace opens in Perfetto: its structure, its times and its bound."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise

import pytest

from hotlap.report.renderers.perfetto import STAGES_ROW, STEPS_ROW, Perfetto


def trace_of(view, lang="en"):
    return json.loads(Perfetto().render(view, lang))


@pytest.mark.parametrize("name", ["data-bound", "multi-rank", "nothing-measured"])
def test_every_event_has_what_its_phase_needs(views, name):
    trace = trace_of(views[name])
    assert trace["displayTimeUnit"] == "ms" and trace["traceEvents"]
    needed = {
        "X": {"name", "cat", "pid", "tid", "ts", "dur"},
        "M": {"name", "pid", "tid", "args"},
        "C": {"name", "pid", "ts", "args"},
    }
    for event in trace["traceEvents"]:
        assert set(event) == {"ph"} | needed[event["ph"]]
        assert event.get("dur", 1) > 0 and event.get("ts", 0) >= 0


def test_stages_fill_their_step_and_do_not_overlap(views):
    rows = defaultdict(list)
    for event in trace_of(views["data-bound"])["traceEvents"]:
        if event["ph"] == "X":
            rows[event["tid"]].append(event)
    assert len(rows[STEPS_ROW]) == 212
    for row in rows.values():
        ordered = sorted(row, key=lambda event: event["ts"])
        for before, after in pairwise(ordered):
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-3
    spent = sum(event["dur"] for event in rows[STAGES_ROW])
    assert spent == pytest.approx(sum(event["dur"] for event in rows[STEPS_ROW]))


def test_each_rank_is_a_process_with_its_own_steps(views):
    events = trace_of(views["multi-rank"])["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {0: "rank 0 (pid 4242)", 1: "rank 1 (pid 4243)"}
    data = {pid: [e["dur"] for e in events if e["name"] == "data" and e["pid"] == pid] for pid in names}
    assert min(data[1]) > 10 * max(data[0])


def test_memory_and_cpu_are_counters_where_they_were_measured(views):
    def phases(view):
        return {event["ph"] for event in trace_of(view)["traceEvents"]}

    assert "C" in phases(views["data-bound"]) and "C" not in phases(views["nothing-measured"])


def test_a_long_run_is_bounded_and_says_what_it_left_out(timeline_of, view_of):
    mix = {"data": 2.0, "forward": 3.0, "backward": 4.0, "optimizer": 1.0, "other": 0.1}
    text = Perfetto().render(view_of(timeline_of(mix, 60_000)))
    assert len(text) < 6_000_000
    assert json.loads(text)["otherData"]["steps_left_out"]["0"] == 54_000


def test_names_are_in_the_language(views):
    names = {event["name"] for event in trace_of(views["data-bound"], "zh")["traceEvents"]}
    assert {"数据", "前向", "第 0 步"} <= names
