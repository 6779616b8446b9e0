"""Marks reach the file whole and in order: beside appends, across a fork, on a full disk."""

from __future__ import annotations

import os
import threading
from array import array

import pytest

from hotlap.probe import marks
from hotlap.probe.marks import Kind
from hotlap.probe.ring import Ring
from hotlap.timeline.gather import read_integers

STEP_END = marks.leave(Kind.STEP)


def step(optimizer: int = 0) -> list[int]:
    return [1 << 8 | marks.enter(Kind.STEP), 2 << 8 | STEP_END, optimizer << 8 | marks.OPTIMIZER_ID]


def test_flushes_beside_appends_lose_and_repeat_nothing(tmp_path):
    ring, count = Ring(tmp_path / "1.marks"), 300_000
    done = threading.Event()

    def empty() -> None:
        while not done.is_set():
            ring.flush()

    threads = [threading.Thread(target=empty) for _ in range(3)]
    for thread in threads:
        thread.start()
    append = ring.append
    for value in range(count):
        append(value)
    done.set()
    for thread in threads:
        thread.join()
    ring.close()
    assert read_integers(ring.path) == array("q", range(count))
    assert ring.count == count


def test_a_process_of_the_same_number_before_it_leaves_nothing_to_it(tmp_path):
    for value in (7, 8):
        ring = Ring(tmp_path / "1.marks")
        ring.append(value)
        ring.close()
    assert list(read_integers(ring.path)) == [8]


def test_a_gap_is_marked_though_no_step_was_in_it(tmp_path):
    """As in a worker, which makes batches and no steps."""
    ring = Ring(tmp_path / "1.marks", limit=8)
    for value in (1, 2, 3):
        ring.append(value << 8 | marks.ITEMS)
        ring.flush()
    ring.close()
    assert list(read_integers(ring.path)) == [1 << 8 | marks.ITEMS, 0 << 8 | marks.DROPPED]


def test_no_file_is_made_for_nothing(tmp_path):
    ring = Ring(tmp_path / "1.marks")
    ring.flush()
    ring.close()
    assert not ring.path.exists()


def test_a_closed_ring_may_be_written_again(tmp_path):
    ring = Ring(tmp_path / "1.marks")
    ring.append(7)
    ring.close()
    ring.append(8)
    ring.close()
    assert list(read_integers(ring.path)) == [7, 8]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python warns of a fork beside threads
def test_after_a_fork_each_process_has_its_own_file(tmp_path):
    ring = Ring(tmp_path / "parent.marks")
    append = ring.append  # as the taps have bound it
    append(1)
    ring.flush()
    append(2)
    ring._lock.acquire()  # as if another thread was flushing at this very moment
    child = os.fork()
    if child == 0:
        ring.reopen(tmp_path / "child.marks")
        append(3)
        ring.close()
        os._exit(0)
    ring._lock.release()
    assert os.waitpid(child, 0)[1] == 0
    ring.close()
    assert list(read_integers(tmp_path / "parent.marks")) == [1, 2]
    assert list(read_integers(tmp_path / "child.marks")) == [3]


def test_dropped_steps_are_told_before_what_follows_them(tmp_path):
    ring = Ring(tmp_path / "1.marks")
    verdicts = iter([True, False, False, True])
    ring._budget.admits = lambda size: next(verdicts)  # type: ignore[method-assign]
    for _ in range(4):
        for mark in step():
            ring.append(mark)
        ring.flush()
    assert list(read_integers(ring.path)) == [*step(), 2 << 8 | marks.DROPPED, *step()]


def test_steps_dropped_at_the_very_end_are_told_too(tmp_path):
    ring = Ring(tmp_path / "1.marks", limit=1)
    for mark in step() * 5:
        ring.append(mark)
    ring.close()
    assert list(read_integers(ring.path)) == [5 << 8 | marks.DROPPED]


@pytest.mark.parametrize(
    ("dropped", "steps"),
    [
        (step(0) + step(1) + step(0) + step(1), 2),  # two optimizers that take turns make one step together
        ([marks.leave(Kind.BACKWARD)] * 3, 3),
        ([*step(), marks.leave(Kind.BACKWARD), marks.leave(Kind.BACKWARD)], 1),  # accumulated gradients
        ([marks.enter(Kind.LOG)], 0),
    ],
)
def test_a_dropped_step_is_counted_as_the_fold_would(tmp_path, dropped, steps):
    ring = Ring(tmp_path / "1.marks", limit=1)
    for mark in dropped:
        ring.append(mark)
    ring.close()
    assert list(read_integers(ring.path)) == [steps << 8 | marks.DROPPED]


def test_a_full_disk_costs_a_window_and_no_more(tmp_path, monkeypatch):
    ring = Ring(tmp_path / "1.marks")
    for mark in step():
        ring.append(mark)
    ring.flush()
    write = os.write
    for failing in (lambda file, content: write(file, content[:11]), _no_space):
        monkeypatch.setattr(os, "write", failing)
        for mark in step():
            ring.append(mark)
        ring.flush()
        monkeypatch.setattr(os, "write", write)
    for mark in step():
        ring.append(mark)
    ring.close()
    assert list(read_integers(ring.path)) == [*step(), 2 << 8 | marks.DROPPED, *step()]


def _no_space(file: int, content: bytes) -> int:
    raise OSError(28, "No space left on device")
