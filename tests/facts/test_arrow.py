"""Timelines come back as they were written, and a file that is not as it was written is told."""

from __future__ import annotations

import json
import random
from array import array
from dataclasses import replace

import pytest

from hotlap.errors import FactError
from hotlap.facts import arrow
from hotlap.facts.arrow import read_timelines, write_timelines
from hotlap.facts.timeline import Ending, Gauge, ProbeCost, Runtime, Stage, Steps, Timeline, Warmup


def timeline(rank: int = 0, count: int = 50, **changes) -> Timeline:
    dice = random.Random(rank)

    def column() -> array:
        return array("q", (dice.randrange(10**9) for _ in range(count)))

    steps = Steps(column(), column(), {stage: column() for stage in Stage}, *(column() for _ in range(4)))
    plain = Timeline(
        rank=rank,
        world=2,
        pid=7,
        ending=Ending.WINDOW,
        steps=steps,
        steady_from=3,
        warmup=Warmup(1.5, 3, 0.25),
        runtime=Runtime(threads=2, debug=("detect_anomaly",)),
        probe=ProbeCost(1e-6, 0.001, 5, 100, faults=("ü",)),
        gauges=(Gauge(1, 2, 0.5, 0.0, 0.1, 0.0, (0.5, 1.0)),),
        inferred=(Stage.LOG,),
    )
    return replace(plain, **changes)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "timeline.arrow"


@pytest.mark.parametrize(
    "timelines", [[timeline()], [timeline(0, 50), timeline(3, 20)], [timeline(count=0)], []]
)
def test_what_is_written_is_read(path, timelines):
    write_timelines(path, timelines)
    assert read_timelines(path) == tuple(timelines)


def test_a_stage_that_was_not_seen_is_a_column_of_zeros(path):
    seen = timeline()
    data = {Stage.DATA: seen.steps.stages[Stage.DATA]}
    write_timelines(path, [replace(seen, steps=replace(seen.steps, stages=data))])
    (read,) = read_timelines(path)
    assert read.steps.stages[Stage.DATA] == data[Stage.DATA] and not any(read.steps.stages[Stage.LOG])


def test_a_missing_file_is_told_with_its_folder(path):
    with pytest.raises(FactError, match=r"there is no timeline\.arrow in"):
        read_timelines(path)


@pytest.mark.parametrize("keep", [0, 1, 8, 100, 0.3, 0.9, 0.9999])
def test_a_torn_file_is_damaged(path, keep):
    write_timelines(path, [timeline()])
    whole = path.read_bytes()
    path.write_bytes(whole[: keep if isinstance(keep, int) else int(len(whole) * keep)])
    with pytest.raises(FactError, match=r"(?s)timeline\.arrow is damaged: .*hotlap profile"):
        read_timelines(path)


def test_no_flipped_bit_is_read_as_another_timeline(path):
    seen = (timeline(),)
    write_timelines(path, seen)
    whole, dice, damaged = path.read_bytes(), random.Random(3), 0
    for _ in range(300):
        content = bytearray(whole)
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        path.write_bytes(content)
        try:
            assert read_timelines(path) == seen, "a flip in what Arrow does not read changes nothing"
        except FactError:
            damaged += 1
    assert damaged > 100


def test_a_file_of_a_newer_hotlap_is_no_damage(path, monkeypatch):
    monkeypatch.setattr(arrow, "SCHEMA", 2)
    write_timelines(path, [timeline()])
    monkeypatch.undo()
    with pytest.raises(
        FactError, match=r"has schema 2, this hotlap reads up to 1(?s:.*)update hotlap"
    ) as told:
        read_timelines(path)
    assert "damaged" not in str(told.value)


def test_an_arrow_file_of_others_is_refused(path):
    import pyarrow as pa

    table = pa.table({"a": [1, 2]})
    for metadata in (None, {b"hotlap": json.dumps({"schema": 1, "timelines": []})}):
        with (
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_file(sink, table.schema.with_metadata(metadata)) as writer,
        ):
            writer.write_table(table)
        with pytest.raises(FactError, match="is damaged"):
            read_timelines(path)
