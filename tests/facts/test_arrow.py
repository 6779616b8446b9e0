"""Timelines in one Arrow file: what goes in comes out, and a damaged file is told."""

from __future__ import annotations

import json
from array import array
from dataclasses import replace

import pyarrow as pa
import pytest

from hotlap.errors import FactError
from hotlap.facts.arrow import read_timelines, write_timelines
from hotlap.facts.timeline import (
    Cadence,
    DatasetFacts,
    Ending,
    Gauge,
    HotLine,
    LoaderFacts,
    ProbeCost,
    Runtime,
    SourceLine,
    Stage,
    Steps,
    SyncPoint,
    Timeline,
    Warmup,
    WorkerFacts,
)


def steps(count: int, seed: int = 0) -> Steps:
    def column(salt: int) -> array[int]:
        return array("q", [seed * 1000 + salt * 100 + row for row in range(count)])

    stages = {stage: column(number + 10) for number, stage in enumerate(Stage)}
    return Steps(column(1), column(2), stages, column(3), array("q", [-1] * count), column(5), column(6))


def timeline(rank: int, count: int) -> Timeline:
    return Timeline(
        rank=rank,
        world=2,
        pid=4711 + rank,
        ending=Ending.WINDOW,
        steps=steps(count, rank),
        steady_from=2,
        warmup=Warmup(1.5, 2, 0.25, 3.0, 1),
        runtime=Runtime(threads=2, autocast="bfloat16", debug=("detect_anomaly",)),
        probe=ProbeCost(1e-5, 0.001, 11.0, 1000, 5, ("a fault",)),
        loaders=(
            LoaderFacts(
                DatasetFacts("Windows", None), 32, 2, None, False, False, place=SourceLine("a.py", 3)
            ),
        ),
        workers=(WorkerFacts(0, -1, 3, 9, 0.1, 0.05, 0.01, 0.2),),
        lines=(HotLine(SourceLine("a.py", 7, "f", "x = größe"), "g", Stage.DATA, 0.5, 10, "worker", "h"),),
        syncs=(SyncPoint(SourceLine("a.py", 9), ".item()", 4, 0.25),),
        cadences=(Cadence(Stage.LOG, 3, 0.1, None),),
        gauges=(Gauge(5, 1 << 40, 1.0, 0.5, 0.0, 0.0, (0.5, 0.25)),),
        inferred=(Stage.DATA,),
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "timeline.arrow"


def test_there_and_back(path):
    written = (timeline(0, 50), timeline(1, 40))
    write_timelines(path, written)
    read = read_timelines(path)
    assert [replace(each, steps=None) for each in read] == [replace(each, steps=None) for each in written]
    for back, gone in zip(read, written, strict=True):
        assert {name: list(getattr(back.steps, name)) for name in ("start", "wall", "samples", "tokens")} == {
            name: list(getattr(gone.steps, name)) for name in ("start", "wall", "samples", "tokens")
        }
        assert {stage: list(column) for stage, column in back.steps.stages.items()} == {
            stage: list(column) for stage, column in gone.steps.stages.items()
        }


def test_lists_and_large_numbers_are_columns_too(path):
    plain = timeline(0, 3)
    lists = replace(plain.steps, wall=[1, 2, 1 << 60], stages={Stage.DATA: [1, 2, 1 << 60]})
    write_timelines(path, [replace(plain, steps=lists)])
    (read,) = read_timelines(path)
    assert list(read.steps.wall) == list(read.steps.stages[Stage.DATA]) == [1, 2, 1 << 60]
    assert list(read.steps.stages[Stage.LOG]) == [0, 0, 0], "a stage that never ran held nothing"


@pytest.mark.parametrize("counts", [[], [0], [0, 5], [5, 0]])
def test_ranks_without_steps(path, counts):
    write_timelines(path, [timeline(rank, count) for rank, count in enumerate(counts)])
    assert [len(each.steps) for each in read_timelines(path)] == counts


def test_only_the_file_is_left(path):
    write_timelines(path, [timeline(0, 5)])
    write_timelines(path, [timeline(0, 6)])
    assert [each.name for each in path.parent.iterdir()] == ["timeline.arrow"]


def test_a_missing_file_is_told_with_its_folder(path):
    with pytest.raises(FactError, match=f"there is no timeline.arrow in {path.parent}"):
        read_timelines(path)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.7, 0.99])
def test_a_torn_file_is_refused(path, share):
    write_timelines(path, [timeline(0, 500)])
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(FactError, match="is damaged") as refusal:
        read_timelines(path)
    assert refusal.value.remedy


def test_a_file_with_a_changed_byte_is_refused_or_reads_the_same(path):
    write_timelines(path, [timeline(0, 500)])
    content = path.read_bytes()
    (truth,) = read_timelines(path)
    for place in range(0, len(content), len(content) // 97):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :])
        try:
            (read,) = read_timelines(path)
        except FactError:
            continue
        assert list(read.steps.wall) == list(truth.steps.wall)
        assert replace(read, steps=None) == replace(truth, steps=None)


def test_what_is_no_timeline_is_refused(path):
    with pa.OSFile(str(path), "wb") as sink:
        table = pa.table({"a": [1, 2]})
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    with pytest.raises(FactError, match="is damaged"):
        read_timelines(path)


def test_what_a_newer_hotlap_wrote_is_refused_with_the_remedy_to_update(path):
    write_timelines(path, [timeline(0, 3)])
    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
        described = json.loads(table.schema.metadata[b"hotlap"]) | {"schema": 99}
        table = table.replace_schema_metadata({b"hotlap": json.dumps(described)})
        with (
            pa.OSFile(str(path.with_name("new.arrow")), "wb") as sink,
            pa.ipc.new_file(sink, table.schema) as writer,
        ):
            writer.write_table(table)
    with pytest.raises(FactError, match="schema 99") as refusal:
        read_timelines(path.with_name("new.arrow"))
    assert "update hotlap" in refusal.value.remedy
