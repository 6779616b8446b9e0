"""What workers did, from their marks: per batch, with waits between batches, and across restarts."""

from __future__ import annotations

import pytest

from hotlap.facts.timeline import WorkerFacts
from hotlap.probe import marks
from hotlap.probe.marks import Kind
from hotlap.timeline.workers import Tally, combine, project_startups, tally

MS = 1_000_000


@pytest.fixture
def tape(new_tape):
    return new_tape()


def make(tape, fetch=6, collate=2, items=4, cpu=None, queued=None):
    """A batch: items for `fetch` ms, then collating."""
    tape.play((Kind.FETCH, fetch, (Kind.COLLATE, collate))).fact(marks.ITEMS, items)
    if cpu is not None:
        tape.fact(marks.FETCH_CPU, round(cpu * MS))
    if queued is not None:
        tape.fact(marks.FETCH_QUEUED, round(queued * MS))
    return tape


def test_fetch_and_collate_are_told_apart_and_waits_lie_between_batches(tape):
    for _ in range(3):
        make(tape).play(5)
    (worker,) = [tally(tape.raw)[-1].worker(0, 1)]
    assert (worker.batches, worker.items) == (3, 12)
    assert worker.fetch_s == pytest.approx(0.018)
    assert worker.collate_s == pytest.approx(0.006)
    assert worker.wait_s == pytest.approx(0.010), "what follows the last batch is nobody's"
    assert worker.busy == pytest.approx(24 / 34)


def test_cpu_time_of_some_fetches_speaks_for_all(tape):
    make(tape, cpu=3)
    make(tape)
    make(tape, cpu=3)
    assert tally(tape.raw)[-1].worker(0, 0).cpu_s == pytest.approx(0.009)


def test_without_a_clock_there_is_no_cpu_time(tape):
    make(tape)
    assert tally(tape.raw)[-1].cpu_ns == 0
    assert tally(tape.raw)[-1].queued_s is None, "absent is not zero"


def test_waiting_for_a_core_is_projected_and_never_more_than_the_fetch(tape):
    make(tape, fetch=6, cpu=3, queued=1)
    make(tape, fetch=6, cpu=3)
    assert tally(tape.raw)[-1].queued_s == pytest.approx(0.002)
    make(tape, fetch=6, cpu=3, queued=100)
    assert tally(tape.raw)[-1].queued_s == pytest.approx(0.009), "the fetch without its CPU time"


def test_a_fetch_that_brought_nothing_is_no_batch(tape):
    make(tape)
    tape.play((Kind.FETCH, 1))  # the end of a stream
    make(tape)
    assert tally(tape.raw)[-1].batches == 2


def test_in_the_main_process_batches_belong_to_the_loader_that_is_named_after_them(tape):
    for loader in (0, 1, 0):
        make(tape.enter(Kind.DATA)).leave(Kind.DATA).fact(marks.LOADER_ID, loader)
    found = tally(tape.raw)
    assert {loader: each.batches for loader, each in found.items()} == {0: 2, 1: 1}


def test_batches_before_the_steady_state_do_not_count(tape):
    make(tape, fetch=500)
    steady = tape.at
    make(tape)
    found = tally(tape.raw, steady)[-1]
    assert (found.batches, found.fetch_ns) == (1, 6 * MS)


def test_what_was_dropped_is_not_taken_for_waiting(tape):
    """A long run is thinned out: batches were made in the gap, only their marks are missing."""
    make(tape).play(5)
    make(tape)
    tape.play(60_000).fact(marks.DROPPED, 0)
    tape.leave(Kind.FETCH).fact(marks.ITEMS, 4)  # of a batch whose beginning is missing
    tape.play(5)
    make(tape).play(5)
    make(tape)
    found = tally(tape.raw)[-1]
    assert found.batches == 4
    assert found.wait_ns == 10 * MS
    assert found.fetch_ns == 4 * 6 * MS


def test_spans_cover_whole_batches(tape):
    start = tape.at
    make(tape).play(5)
    make(tape)
    first, second = tally(tape.raw)[-1].spans
    assert first == (start, start + 8 * MS, 0)
    assert second == (start + 13 * MS, start + 21 * MS, 0)


def worker(loader=0, number=0, **changes):
    plain = {"batches": 2, "items": 8, "fetch_s": 1.0, "cpu_s": 0.5, "collate_s": 0.25, "wait_s": 0.75}
    return WorkerFacts(loader, number, **plain | changes)


def test_a_worker_that_was_started_again_is_one_worker():
    one, other = combine([worker(startup_s=0.1, queued_s=0.2), worker(number=1), worker(startup_s=0.3)])
    assert (one.batches, one.items, one.startups) == (4, 16, 2)
    assert (one.fetch_s, one.cpu_s, one.collate_s, one.wait_s) == (2.0, 1.0, 0.5, 1.5)
    assert one.startup_s == pytest.approx(0.4)
    assert one.queued_s == pytest.approx(0.2), "of the starts in which it was asked"
    assert (other.worker, other.startups, other.queued_s) == (1, 1, None)


def test_equal_numbers_of_two_loaders_are_two_workers():
    assert [(each.loader, each.worker) for each in combine([worker(1, 0), worker(0, 1), worker(0, 0)])] == [
        (0, 0),
        (0, 1),
        (1, 0),
    ]


def test_recorded_starts_stand_for_those_that_were_not():
    (projected,) = project_startups([worker(startups=2, startup_s=0.4)], 100)
    assert (projected.startups, projected.startup_s) == (100, pytest.approx(20.0))
    assert project_startups([worker(startups=2)], 2) == [worker(startups=2)]
    assert project_startups([worker(number=-1)], 5) == [worker(number=-1)], "the main process is started once"


def test_a_tally_of_nothing_is_empty():
    assert tally([]) == {}
    assert Tally().worker(0, 0).busy == 0.0


def test_watched_fetches_of_the_main_process_stand_for_those_that_were_not(tape):
    """Every fourth of eight cheap fetches is watched; between batches 5 ms of training."""
    tape.fact(marks.LOADER_ID, 0)  # the loader begins
    for batch in range(8):
        part = (Kind.FETCH, 6, (Kind.COLLATE, 2)) if batch % 4 == 0 else 8
        tape.play((Kind.DATA, part))
        if batch % 4 == 0:
            tape.fact(marks.ITEMS, 4)
        tape.fact(marks.LOADER_ID, 0).play(5)
    worker = tally(tape.raw)[0].worker(0, -1)
    assert (worker.batches, worker.items) == (8, 32)
    assert worker.fetch_s == pytest.approx(0.048)
    assert worker.collate_s == pytest.approx(0.016)
