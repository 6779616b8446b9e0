"""Figures beside the steps: computed from what was seen, None where nothing was."""

from __future__ import annotations

import dataclasses

import pytest

from hotlap.facts.host import Gpu
from hotlap.facts.timeline import Gauge, HotLine, SourceLine, Stage, SyncPoint, WorkerFacts

GIB = 2**30


def gauge(t: int, rss: int, **more: object) -> Gauge:
    return dataclasses.replace(Gauge(t, rss, 1.0, 0.25, 0.5, 0.125, (0.75, 0.5)), **more)


def test_memory_is_of_the_steady_state_and_its_peak_of_the_whole_run(timeline_of, view_of):
    timeline = timeline_of({"data": 10.0}, 100, gauges=())
    begin = timeline.steps.start[timeline.steady_from]
    looks = [gauge(0, 9 * GIB), *(gauge(begin + index, GIB + index) for index in range(20))]
    memory = view_of(dataclasses.replace(timeline, gauges=tuple(looks)))["memory"]
    assert memory["rss_peak"] == 9 * GIB
    assert (memory["rss_start"], memory["rss_end"], memory["rss_growth"]) == (GIB + 2, GIB + 17, 15)
    assert memory["cuda"] is None


def test_one_look_at_memory_says_nothing_of_growth(timeline_of, view_of):
    memory = view_of(timeline_of({"data": 10.0}, gauges=(gauge(10**12, GIB),)))["memory"]
    assert memory["rss_start"] == GIB and memory["rss_growth"] is None


def test_gpu_memory_where_there_is_one(timeline_of, view_of):
    looks = (
        gauge(0, 1, cuda_allocated=5, cuda_reserved=8),
        gauge(10**12, 1, cuda_allocated=3, cuda_reserved=8),
    )
    view = view_of(timeline_of({"data": 1.0}, gauges=looks), gpus=(Gpu("T4", 16 * GIB),))
    cuda = view["memory"]["cuda"]
    assert (cuda["allocated_peak"], cuda["reserved_peak"], cuda["total"]) == (5, 8, 16 * GIB)


def test_cpu_means_and_cores(timeline_of, view_of):
    looks = (gauge(10**12, 1, stolen=0.1), gauge(10**12, 1, cpu=2.0, gpu_busy=0.4))
    cpu = view_of(timeline_of({"data": 1.0}, gauges=looks))["cpu"]
    assert (cpu["main"], cpu["workers"], cpu["foreign"], cpu["iowait"]) == (1.5, 0.25, 0.5, 0.125)
    assert cpu["per_core"] == [0.75, 0.5] and cpu["cores"] == 2
    assert cpu["gpu_busy"] == pytest.approx(0.4) and cpu["stolen"] == pytest.approx(0.1)


def test_workers_per_item_and_per_batch(timeline_of, view_of):
    seen = (WorkerFacts(0, 0, 10, 100, 2.0, 1.5, 0.5, 7.5), WorkerFacts(0, 1, 0, 0, 0.0, 0.0, 0.0, 0.0))
    busy, idle = view_of(timeline_of({"data": 1.0}, workers=seen))["workers"]
    assert (busy["fetch_ms_per_item"], busy["cpu_share"], busy["busy"]) == (20, 0.75, 0.25)
    assert (busy["collate_ms_per_batch"], busy["wait_ms_per_batch"]) == (50, 750)
    per_item = ("fetch_ms_per_item", "cpu_share", "busy", "collate_ms_per_batch", "wait_ms_per_batch")
    assert [idle[key] for key in per_item] == [None] * 5


@pytest.mark.parametrize(
    ("role", "stage", "worker", "of"),
    [
        ("worker", Stage.DATA, 0, "item"),
        ("main", Stage.DATA, -1, "item"),
        ("main", Stage.DATA, 0, "data"),
        ("main", Stage.OTHER, -1, "other"),
    ],
)
def test_a_hot_line_says_what_its_share_is_of(timeline_of, view_of, role, stage, worker, of):
    line = HotLine(SourceLine("a.py", 1), "f", stage, 0.5, 10, role)
    workers = (WorkerFacts(0, worker, 1, 1, 1.0, 1.0, 0.0, 0.0),)
    assert view_of(timeline_of({"data": 1.0}, lines=(line,), workers=workers))["lines"][0]["of"] == of


def test_lines_are_ranked_by_the_part_of_a_step_behind_them(timeline_of, view_of):
    def line(number, stage, share, role="main"):
        return HotLine(SourceLine("a.py", number), "f", stage, share, 10, role)

    seen = (
        line(1, Stage.BACKWARD, 1.0),
        line(2, Stage.DATA, 1.0),  # the loop, which waits for its workers
        line(3, Stage.DATA, 0.2, "worker"),
        line(4, Stage.DATA, 0.7, "worker"),
    )
    workers = (WorkerFacts(0, 0, 1, 1, 1.0, 1.0, 0.0, 0.0),)
    view = view_of(timeline_of({"data": 8.0, "backward": 2.0}, lines=seen, workers=workers))
    assert [each["place"]["line"] for each in view["lines"]] == [4, 1, 3, 2]


def test_without_a_steady_step_lines_are_ranked_by_samples(timeline_of, view_of):
    seen = tuple(HotLine(SourceLine("a.py", line), "f", Stage.DATA, 0.1, line) for line in range(50))
    view = view_of(timeline_of({"data": 1.0}, 3, steady_from=3, lines=seen))
    assert [line["samples"] for line in view["lines"]] == list(range(49, 19, -1))


def test_the_longest_synchronisation_comes_first(timeline_of, view_of):
    seen = tuple(SyncPoint(SourceLine("a.py", line), ".item()", 4, float(line)) for line in range(50))
    syncs = view_of(timeline_of({"data": 1.0}, syncs=seen))["syncs"]
    assert [sync["seconds"] for sync in syncs] == [float(line) for line in range(49, 29, -1)]
    assert syncs[0]["ms_each"] == 49_000 / 4
