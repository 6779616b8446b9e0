"""The numbers behind the plots."""

from __future__ import annotations

import pytest

from hotlap.facts.timeline import WorkerFacts
from hotlap.report import charts
from hotlap.report.locale import Phrases

EN = Phrases("en")


def test_the_timeline_names_the_stage_that_held_each_longest_step(views):
    plot = charts.timeline(views["data-bound"], EN)
    assert plot["held_by"] == ["data"] * 212
    assert len(plot["x"]) == len(plot["longest"]) == 212
    stalls = [step for step, longest in zip(plot["x"], plot["longest"], strict=True) if longest > 400]
    assert stalls == [50, 100, 150, 200]


def test_stages_are_stacked_in_the_order_of_a_step(views):
    names = [stage["id"] for stage in charts.timeline(views["data-bound"], EN)["stages"]]
    assert names == ["data", "transfer", "forward", "backward", "optimizer", "other"]


def test_a_workers_life_adds_up_to_one(views):
    plot = charts.workers(views["data-bound"], EN)
    assert plot["names"] == ["worker 0", "worker 1"]
    for shares in zip(*(part["x"] for part in plot["parts"]), strict=True):
        assert sum(shares) == pytest.approx(1, abs=1e-3)


def test_the_training_thread_is_no_worker(timeline_of, view_of):
    in_main = (WorkerFacts(0, -1, 10, 100, 2.0, 1.5, 0.5, 7.5),)
    assert charts.workers(view_of(timeline_of({"data": 1.0}, workers=in_main)), EN) is None


def test_memory_is_drawn_in_mib_and_the_gpu_only_where_there_is_one(views):
    plot = charts.memory(views["data-bound"], EN)
    assert [line["id"] for line in plot["lines"]] == ["rss"]
    assert plot["lines"][0]["y"][0] == 812 and plot["lines"][0]["y"][-1] == 815


def test_use_of_the_cpu_that_never_was_is_not_drawn(views):
    assert "workers" in [line["id"] for line in charts.cpu(views["data-bound"], EN)["lines"]]
    idle = {**views["data-bound"]["gauges"], "workers_cpu": [0.0] * 41}
    view = {**views["data-bound"], "gauges": idle}
    assert "workers" not in [line["id"] for line in charts.cpu(view, EN)["lines"]]


def test_ranks_are_drawn_where_there_are_several(views):
    assert charts.ranks(views["healthy"], EN) is None
    plot = charts.ranks(views["multi-rank"], EN)
    assert plot["names"] == ["rank 0", "rank 1"]
    data = next(part for part in plot["parts"] if part["id"] == "data")
    assert data["x"] == pytest.approx([1.0, 14.0], rel=0.02)


def test_what_was_not_measured_has_no_plot(views):
    plots = charts.data(views["nothing-measured"], EN)
    assert [name for name, plot in plots.items() if plot is None] == [
        "experiments", "workers", "memory", "cpu", "ranks",
    ]  # fmt: skip
