"""Sections say what was seen, leave out what was not, and know the odd cases."""

from __future__ import annotations

import dataclasses

import pytest

from hotlap.facts.host import Gpu, Storage
from hotlap.facts.timeline import (
    DatasetFacts,
    DeviceTime,
    Gauge,
    HotLine,
    LoaderFacts,
    Pauses,
    ProbeCost,
    SourceLine,
    Stage,
    SyncPoint,
    WorkerFacts,
)
from hotlap.report.document import ColumnKind
from hotlap.report.locale import Phrases
from hotlap.report.sections import build
from hotlap.report.sections.machine import host

EN = Phrases("en")


def sections(view):
    return {section.id: section for section in build(view, EN)}


def test_what_was_not_measured_has_no_section_or_says_so(views):
    found = sections(views["nothing-measured"])
    assert set(found) == {"stages", "warmup", "memory"}
    assert found["memory"].sentences == ("Not measured.",)


def test_sections_come_in_the_order_of_the_report(views):
    assert list(sections(views["data-bound"])) == [
        "stages", "tried", "not_tried", "lines", "syncs", "workers", "loaders", "occasional", "memory", "cpu", "warmup",
    ]  # fmt: skip


def test_every_row_has_a_cell_per_column_and_numbers_only_in_bars(views):
    for view in views.values():
        for section in build(view, EN):
            for row in section.table.rows if section.table else ():
                assert len(row) == len(section.table.columns)
                for cell, column in zip(row, section.table.columns, strict=True):
                    assert isinstance(cell, float if column.kind is ColumnKind.BAR else str)


def test_the_small_print_tells_of_thinned_steps_and_accumulation(timeline_of, view_of):
    timeline = timeline_of({"forward": 1.0}, probe=ProbeCost(1e-6, 0.001, 3, 10, dropped_steps=700))
    steps = dataclasses.replace(timeline.steps, micro=[4] * 212)
    notes = " ".join(sections(view_of(dataclasses.replace(timeline, steps=steps)))["stages"].notes)
    assert "700 steps were thinned out" in notes and "4 backward passes" in notes


def test_garbage_collections_are_told_without_any_cadence(timeline_of, view_of):
    found = sections(view_of(timeline_of({"forward": 1.0}, pauses=Pauses(3, 0.3, 0.2))))
    assert found["occasional"].sentences[0].startswith("Garbage collection: 3 pauses, 300 ms")
    assert found["occasional"].table is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_workers": 0, "prefetch_factor": None}, "no workers"),
        ({"num_workers": 3}, "3 workers (fork), prefetch 2"),
        ({"pin_memory": True}, ", pinned"),
        ({"training": False}, "Validation only."),
        ({"batch_size": 8}, "batch 8"),
    ],
)
def test_a_loader_in_words(timeline_of, view_of, changes, said):
    loader = LoaderFacts(DatasetFacts("Set", None), None, 2, 2, False, False)
    view = view_of(timeline_of({"data": 1.0}, loaders=(dataclasses.replace(loader, **changes),)))
    sentence = sections(view)["loaders"].sentences[0]
    assert said in sentence and "not measured" not in sentence


def test_items_prepared_on_the_training_thread_have_no_hand_over(timeline_of, view_of):
    view = view_of(timeline_of({"data": 1.0}, workers=(WorkerFacts(0, -1, 10, 100, 2.0, 1.5, 0.5, 7.5),)))
    row = sections(view)["workers"].table.rows[0]
    assert row[0] == "main" and row[-2:] == ("-", "-")


def test_a_worker_that_prepared_nothing_was_not_measured(timeline_of, view_of):
    view = view_of(timeline_of({"data": 1.0}, workers=(WorkerFacts(0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0),)))
    assert sections(view)["workers"].table.rows[0][2] == "not measured"


def test_gpu_memory_that_was_not_read_is_not_measured(timeline_of, view_of):
    view = view_of(timeline_of({"forward": 1.0}), gpus=(Gpu("T4", 2**34),))
    assert "GPU memory: not measured." in sections(view)["memory"].sentences


def test_gpu_use_is_told_where_it_was_measured(timeline_of, view_of):
    gauge = Gauge(10**12, 2**30, 1.0, 0.0, 0.0, 0.0, cuda_allocated=2**30, cuda_reserved=2**31, gpu_busy=0.42)
    found = sections(view_of(timeline_of({"forward": 1.0}, gauges=(gauge,)), gpus=(Gpu("T4", 2**34),)))
    assert "GPU busy 42 %." in found["cpu"].sentences
    assert "peak 1.00 GiB, 2.00 GiB reserved; the GPU has 16.0 GiB" in found["memory"].sentences[1]


def test_what_was_in_a_gpus_way_is_told(timeline_of, view_of):
    gauge = Gauge(
        10**12, 2**30, 1.0, 0.0, 0.0, 0.0,
        gpu_busy=0.42, gpu_clock=0.5, gpu_throttle="heat, power", gpu_others=1, gpu_lost=True,
    )  # fmt: skip
    found = sections(view_of(timeline_of({"forward": 1.0}, gauges=(gauge,))))["cpu"].sentences
    assert "GPU clock at 50 % of its highest." in found
    assert any("throttled for 100 % of the time (heat, power limit)" in each for each in found)
    assert "1 other process used the GPU at the same time." in found
    assert any("stopped answering its driver" in each for each in found)


def test_a_devices_idle_time_is_told_by_what_the_host_did(timeline_of, view_of):
    gauge = Gauge(10**12, 2**30, 1.0, 0.0, 0.0, 0.0)
    idle = {Stage.OTHER: 0.05, Stage.DATA: 0.2, Stage.FORWARD: 0.001}
    timeline = timeline_of({"forward": 1.0}, gauges=(gauge,), device=DeviceTime(0.749, idle))
    view = view_of(timeline)
    assert view["device"]["idle"]["data"] == 0.2
    told = (
        "The device had work for 75 % of the time; it was idle while the host was in: data 20 %, other 5.0 %."
    )
    assert told in sections(view)["cpu"].sentences


def test_ranks_that_work_alike_and_a_rank_without_steps(timeline_of, view_of):
    ranks = [
        timeline_of({"forward": 5.0}, rank=0, world=2),
        timeline_of({"forward": 5.0}, 2, rank=1, world=2),
    ]
    rows = sections(view_of(*ranks))["ranks"].table.rows
    assert rows[1][1] == "not measured"


def test_the_machine_in_words(timeline_of, view_of):
    storage = Storage("/data", 2e9)
    view = view_of(timeline_of({"forward": 1.0}), gpus=(Gpu("T4", 2**34),), storage=storage, cpu_bf16=True)
    rows = dict(host(view, EN).table.rows)
    assert rows["GPU"] == "T4, 16.0 GiB" and rows["CPU bf16, AMX"] == "bf16"
    assert rows["storage"].startswith("/data: 1.86 GiB/s") and rows["torch"] == "2.13.0"
    assert (
        dict(host(view_of(timeline_of({"forward": 1.0}), cpu_flags=None), EN).table.rows)["CPU bf16, AMX"]
        == "not measured"
    )


def test_an_occasional_stage_without_a_cadence_came_once(views):
    cadence = {
        **views["data-bound"]["cadences"][0],
        "every_steps": None,
        "place": None,
        "stage": Stage.CHECKPOINT,
    }
    table = sections({**views["data-bound"], "cadences": [cadence]})["occasional"].table
    assert table.rows[0][:2] == ("checkpoint", "once")
    assert "place" not in [column.title for column in table.columns], "a column without a single place"


def hot(callee: str, inner: str = "", stage: Stage = Stage.FORWARD, code: str = "x = f(y)") -> HotLine:
    return HotLine(
        SourceLine("/home/ada/printer/a.py", 7, "main", code), callee, stage, 0.5, 10, "main", inner
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (hot("scaler.transform", "numpy.sum"), "a.py:7 scaler.transform - 50 %"),
        (hot("Module._wrapped_call_impl"), "a.py:7 x = f(y) - 50 %"),
        (hot("_BaseDataLoaderIter.__next__"), "a.py:7 x = f(y) - 50 %"),
        (hot("", code=""), "a.py:7 main - 50 %"),
        (hot("", code="y = " + "z" * 99), "a.py:7 y = " + "z" * 40 + " ... - 50 %"),
    ],
)
def test_a_hot_line_is_told_by_what_the_reader_knows(timeline_of, view_of, line, said):
    view = view_of(timeline_of({"forward": 1.0}, lines=(line,)))
    assert sections(view)["lines"].sentences[0].startswith(said)


def test_a_line_that_holds_a_whole_loop_says_where_it_led(timeline_of, view_of):
    lines = (
        hot("Trainer.fit", "adam.step.<locals>.<lambda>", Stage.OPTIMIZER),
        hot("Trainer.fit", "graph.backward", Stage.BACKWARD),
    )
    view = view_of(timeline_of({"backward": 1.0, "optimizer": 9.0}, lines=lines))
    first, second = sections(view)["lines"].sentences
    assert first.startswith("a.py:7 Trainer.fit -> adam.step - 50 %")
    assert second.startswith("a.py:7 Trainer.fit -> graph.backward - 50 %")


def test_synchronisations_that_take_no_time_are_no_news(timeline_of, view_of):
    place = SourceLine("/home/ada/printer/a.py", 7)
    cheap, dear = (SyncPoint(place, ".item()", 100, seconds) for seconds in (1e-5, 0.1))
    assert "syncs" not in sections(view_of(timeline_of({"forward": 5.0}, syncs=(cheap,))))
    assert len(sections(view_of(timeline_of({"forward": 5.0}, syncs=(cheap, dear))))["syncs"].table.rows) == 1


def test_items_of_the_training_thread_are_explained_as_such(timeline_of, view_of):
    main = WorkerFacts(0, -1, 10, 100, 2.0, 1.5, 0.5, 0.0)
    alone = sections(view_of(timeline_of({"data": 1.0}, workers=(main,))))["workers"]
    beside = sections(
        view_of(timeline_of({"data": 1.0}, workers=(main, WorkerFacts(1, 0, 1, 1, 1.0, 1.0, 0.0, 0.0))))
    )
    assert "training thread" in alone.notes[0] and "bottleneck" in beside["workers"].notes[0]


def test_several_loaders_have_the_numbers_that_their_workers_name(timeline_of, view_of):
    one = LoaderFacts(DatasetFacts("Windows", 10), 2, 0, None, False, False, epochs=1)
    sentences = sections(view_of(timeline_of({"data": 1.0}, loaders=(one, one))))["loaders"].sentences
    assert [each[:18] for each in sentences] == ["loader 0: Windows,", "loader 1: Windows,"]
    assert "1 epoch seen" in sentences[0]
    unused = dataclasses.replace(one, epochs=0)
    (only,) = sections(view_of(timeline_of({"data": 1.0}, loaders=(unused, one))))["loaders"].sentences
    assert only.startswith("loader 1: "), "a loader that was built and not used is no news"
    assert (
        sections(view_of(timeline_of({"data": 1.0}, loaders=(one,))))["loaders"].sentences[0][:8]
        == "Windows,"
    )
