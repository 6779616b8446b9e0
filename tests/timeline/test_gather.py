"""What the probe left in its folder becomes a timeline per rank, whatever is missing or torn."""

from __future__ import annotations

import json
from array import array

import pytest

from hotlap.facts.timeline import Ending, Gauge, Stage
from hotlap.probe import boundary, marks
from hotlap.probe.marks import Kind
from hotlap.probe.sampler import LINE_BITS
from hotlap.timeline.gather import read_integers, read_recordings, timelines

MS = 1_000_000
LOADER = {"dataset": "Rows", "batch_size": 8, "num_workers": 0}


class Folder:
    """Writes the files of processes as the probe does."""

    def __init__(self, path):
        self.path = path

    def write(self, pid, raw, samples=(), **facts):
        (self.path / f"{pid}.marks").write_bytes(array("q", raw).tobytes())
        if samples:
            (self.path / f"{pid}.samples").write_bytes(array("q", samples).tobytes())
        if facts:
            (self.path / f"{pid}.json").write_text(json.dumps({"pid": pid, **facts}))

    def read(self, ending=Ending.FINISHED, end=None, gauges=None):
        return timelines(read_recordings(self.path), ending, end or 1 << 60, gauges or {})


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


@pytest.fixture
def usual(new_tape):
    return lambda count=30: new_tape().usual(count)


def worker_marks(tape, batches=3, at=None):
    tape.at = at or tape.at
    for _ in range(batches):
        tape.play((Kind.FETCH, 4, (Kind.COLLATE, 1)), 2).fact(marks.ITEMS, 8)
    return tape.raw


def test_a_folder_without_marks_gives_nothing(folder):
    (folder.path / "control").write_bytes(b"x" * 16)
    (folder.path / "seen.jsonl").write_text("{}\n")
    assert read_recordings(folder.path) == []
    assert folder.read() == ()


def test_a_process_that_was_killed_before_it_described_itself_is_still_a_timeline(folder, usual):
    folder.write(7, usual().raw)
    (timeline,) = folder.read(Ending.KILLED, end=usual().at)
    assert (timeline.pid, timeline.rank, timeline.world) == (7, 0, 1)
    assert len(timeline.steps) == 30
    assert timeline.ending is Ending.KILLED
    assert (timeline.loaders, timeline.model, timeline.free_input_s) == ((), None, None)


def test_a_torn_last_mark_and_torn_facts_are_left_away(folder, usual):
    folder.write(7, usual().raw, rank=0)
    with (folder.path / "7.marks").open("ab") as file:
        file.write(b"\x01\x02\x03")
    (folder.path / "7.json").write_text('{"pid": 7, "ran')
    assert len(folder.read()[0].steps) == 30
    assert list(read_integers(folder.path / "absent")) == []


def test_each_rank_is_a_timeline_and_of_two_processes_of_one_the_longer(folder, usual):
    folder.write(5, usual(10).raw, rank=1, world=2)
    folder.write(6, usual(30).raw, rank=0, world=2)
    folder.write(7, usual(20).raw, rank=0, world=2)
    assert [(each.rank, each.world, each.pid, len(each.steps)) for each in folder.read()] == [
        (0, 2, 6, 30),
        (1, 2, 5, 10),
    ]


@pytest.fixture
def faults():
    yield boundary.faults
    boundary.faults.clear()


def test_a_recording_that_cannot_be_read_does_not_take_the_others_with_it(folder, usual, faults):
    folder.write(5, usual(10).raw, rank=0, world=2, loaders="garbled")
    folder.write(6, usual(30).raw, rank=1, world=2)
    assert [each.rank for each in folder.read()] == [1]
    assert len(faults) == 1 and "_timeline" in faults[0]


def test_a_trace_that_cannot_be_read_costs_the_operators_alone(folder, usual, faults):
    folder.write(6, usual(30).raw)
    event = {
        "name": "aten::mm",
        "cat": "cpu_op",
        "ph": "X",
        "ts": 1,
        "dur": 5,
        "tid": 1,
        "args": {"Input Dims": [3]},
    }
    (folder.path / "6.trace.json").write_text(json.dumps({"traceEvents": [event]}))
    (timeline,) = folder.read()
    assert timeline.ops is None and len(timeline.steps) == 30
    (folder.path / "6.trace.json").write_text('{"traceEvents": [{"name"')
    assert folder.read()[0].ops is None


def test_the_rank_that_torch_says_goes_before_the_environments(folder, usual):
    folder.write(5, usual().raw, rank=0, world=1, runtime={"rank": 3, "world": 4})
    (timeline,) = folder.read()
    assert (timeline.rank, timeline.world) == (3, 4)


def test_what_follows_the_window_is_cut_off_in_the_script_and_in_its_workers(folder, usual, new_tape):
    tape = usual()
    end = tape.at
    tape.fact(marks.WINDOW_END, 0).usual(50)
    late = [(end + 5 * MS) // 1000 << LINE_BITS, (end - 5 * MS) // 1000 << LINE_BITS]
    loader = LOADER | {"num_workers": 1, "worker_pids": {"8": 0}, "epochs": 1}
    folder.write(7, tape.raw, sorted(late), window_end=end, window_done=True, loaders=[loader])
    worker = new_tape()
    worker_marks(worker, 2, at=end - 20 * MS)
    worker_marks(worker, 9, at=end + 10 * MS)
    folder.write(8, worker.raw, role="worker", parent=7)
    main, _ = read_recordings(folder.path)
    assert len(main.samples) == 1
    gauges = [Gauge(at, 1, 0.0, 0.0, 0.0, 0.0) for at in (end - MS, end + MS)]
    (timeline,) = folder.read(Ending.FINISHED, gauges={7: gauges})
    assert len(timeline.steps) == 30
    assert timeline.ending is Ending.WINDOW
    assert timeline.workers[0].batches == 2
    assert [gauge.t for gauge in timeline.gauges] == [end - MS]


def test_a_worker_names_its_loader_by_the_place_in_the_timeline(folder, usual, new_tape):
    """A loader that could not be looked at is left out, and those after it move up."""
    unknown = {"place": ["train.py", 3, "main"], "worker_pids": {"8": 0}}
    known = LOADER | {"num_workers": 1, "worker_pids": {"9": 0}, "worker_starts": 1}
    in_main = LOADER | {"dataset": "Held out"}
    tape = usual()
    worker_marks(tape, 2)
    tape.fact(marks.LOADER_ID, 2)
    worker_marks(tape, 1)
    tape.fact(marks.LOADER_ID, 64).usual(5)  # one of more loaders than are described
    folder.write(7, tape.raw, loaders=[unknown, known, in_main])
    folder.write(8, worker_marks(new_tape(), 5), role="worker")
    folder.write(9, worker_marks(new_tape(), 3), role="worker")
    (timeline,) = folder.read()
    assert [loader.dataset.kind for loader in timeline.loaders] == ["Rows", "Held out"]
    found = [(each.loader, each.worker, each.batches) for each in timeline.workers]
    assert found == [(0, 0, 3), (1, -1, 2)]
    assert all(timeline.loaders[each.loader] for each in timeline.workers)


def test_workers_that_were_started_again_are_summed_and_their_starts_projected(folder, usual, new_tape):
    loader = LOADER | {"num_workers": 1, "epochs": 50, "worker_starts": 50}
    opened = usual(0)
    pids = {}
    for pid in (8, 9):
        opened.play((Kind.LOADER, 10)).fact(marks.LOADER_ID, 0)
        folder.write(pid, worker_marks(new_tape(), 3, at=opened.at), role="worker", threads=pid)
        pids[str(pid)] = 0
        opened.usual(20)
    folder.write(7, opened.raw, loaders=[loader | {"worker_pids": pids}])
    (timeline,) = folder.read()
    (worker,) = timeline.workers
    assert (worker.batches, worker.items, worker.startups) == (6, 48, 50)
    assert worker.startup_s == pytest.approx(50 * 0.010), "from iter(loader) to the first batch"
    assert timeline.loaders[0].worker_threads == 9


def test_samples_fall_into_stages_of_the_script_and_of_its_workers(folder, usual, new_tape):
    tape = usual()
    table = {"lines": [["data.py", 3, "wait", "", "x"]], "cpu_ns": 1000}
    waiting = (tape.at - 9 * MS) // 1000 << LINE_BITS  # in the last step's data
    loader = LOADER | {"num_workers": 1, "worker_pids": {"8": 0}}
    folder.write(7, tape.raw, [waiting], loaders=[loader], sampler=table)
    worker = new_tape()
    fetching = (worker.at + MS) // 1000 << LINE_BITS
    made = {"lines": [["data.py", 9, "__getitem__", "transform", "x"]]}
    folder.write(8, worker_marks(worker), [fetching], role="worker", sampler=made)
    (timeline,) = folder.read()
    assert {(line.role, line.stage, line.place.line) for line in timeline.lines} == {
        ("main", Stage.DATA, 3),
        ("worker", Stage.DATA, 9),
    }


def test_a_run_that_was_cut_off_is_closed_where_it_ended(folder, usual):
    tape = usual().enter(Kind.DATA)
    folder.write(7, tape.raw)
    (timeline,) = folder.read(Ending.INTERRUPTED, end=tape.at + 500 * MS)
    assert timeline.steps.stages[Stage.DATA][29] == 502 * MS, "the stall it was stopped in"


def test_what_the_probe_cost_counts_every_mark_and_the_sampler(folder, usual):
    tape = usual()
    folder.write(
        7, tape.raw, marks=600, mark_ns=1000, sampler={"cpu_ns": 300_000, "lines": []}, faults=["tap: x"]
    )
    (timeline,) = folder.read()
    assert timeline.probe.per_step_s == pytest.approx((600 * 1000 + 300_000) / 30 / 1e9)
    assert timeline.probe.share == pytest.approx(0.9 / 300)
    assert timeline.probe.marks_per_step == 20
    assert timeline.probe.bytes == len(tape.raw) * 8
    assert timeline.probe.faults == ("tap: x",)


def test_what_the_sampler_cost_outside_of_the_window_is_not_the_window_s(folder, usual):
    tape = usual()
    stacks = [((tape.at - 50 * MS) // 1000) << LINE_BITS] * 10
    folder.write(7, tape.raw, stacks, mark_ns=0, sampler={"cpu_ns": 8_000_000, "lines": [], "samples": 40})
    (timeline,) = folder.read()
    assert timeline.probe.per_step_s == pytest.approx(8e-3 * 10 / 40 / 30)


def test_steps_that_were_thinned_out_are_counted(folder, new_tape):
    tape = new_tape().usual(20).fact(marks.DROPPED, 500).usual(20)
    folder.write(7, tape.raw)
    (timeline,) = folder.read()
    assert timeline.probe.dropped_steps == 501, "and the one under way"
    assert len(timeline.steps) == 39


def test_start_up_and_compiling_are_told_on_their_own(folder, new_tape):
    tape = new_tape()
    tape.batch(2).play((Kind.COMPILE, 700), (Kind.FORWARD, 2), (Kind.BACKWARD, 4)).step(1)
    tape.usual(40)
    folder.write(7, tape.raw)
    warmup = folder.read()[0].warmup
    assert warmup.startup_s == 2.0
    assert (warmup.compiles, warmup.compile_s) == (1, 0.7)
    assert warmup.steps >= 1
    assert warmup.seconds == pytest.approx(0.709 + (warmup.steps - 1) * 0.010)


def test_collectives_and_collections_count_from_the_steady_state_on(folder, new_tape):
    tape = new_tape().play((Kind.COMM, 900), (Kind.COLLECT, 900)).usual(40)
    tape.play((Kind.COMM, 3), (Kind.COLLECT, 5)).usual(2)
    folder.write(7, tape.raw)
    (timeline,) = folder.read()
    assert timeline.comm_s == pytest.approx(0.003)
    assert (timeline.pauses.count, timeline.pauses.longest_s) == (1, pytest.approx(0.005))


def test_compiling_in_the_steady_state_is_counted_there(folder, new_tape):
    tape = new_tape().usual(40)
    tape.batch(2).play((Kind.COMPILE, 30), (Kind.FORWARD, 2), (Kind.BACKWARD, 4)).step(1)
    folder.write(7, tape.usual(40).raw)
    (timeline,) = folder.read()
    assert timeline.steady_from < 40
    assert timeline.pauses.compile_s == pytest.approx(0.030)


def test_without_collectives_their_time_is_not_known(folder, usual):
    folder.write(7, usual().raw)
    assert folder.read()[0].comm_s is None
