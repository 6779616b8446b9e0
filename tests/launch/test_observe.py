"""Follows the marks of a running job, and says when it has made enough steps."""

from __future__ import annotations

import os
import struct
from array import array

import pytest

from hotlap.launch import observe
from hotlap.launch.observe import Observer
from hotlap.probe import control, marks
from hotlap.probe.marks import Kind
from hotlap.stats.robust import steady_from

MS = 1_000_000
STEP, BACKWARD = marks.leave(Kind.STEP), marks.leave(Kind.BACKWARD)


class Job:
    """Writes marks as processes of a job would."""

    def __init__(self, folder):
        self.folder = folder
        self.at = 0

    def write(self, pid, *values):
        with (self.folder / f"{pid}.marks").open("ab") as file:
            file.write(array("q", values).tobytes())

    def steps(self, count, *, pid=1, optimizer=0, ms=10):
        for _ in range(count):
            self.at += ms * MS
            self.write(pid, self.at << 8 | STEP, optimizer << 8 | marks.OPTIMIZER_ID)

    def backwards(self, count, *, ms=10):
        for _ in range(count):
            self.at += ms * MS
            self.write(1, self.at << 8 | BACKWARD)

    @property
    def word(self):
        return struct.unpack_from("q", (self.folder / "control").read_bytes())[0]


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.setattr(observe, "_LOOK_EVERY_S", 0.0)
    control.create(tmp_path)
    return Job(tmp_path)


@pytest.fixture
def said():
    return []


@pytest.fixture
def watch(job, said):
    made = []

    def start(wanted, **options):
        made.append(Observer(job.folder, wanted, steady_from, said.append, **options))
        return lambda: made[-1].tick(os.getpid())

    yield start
    for observer in made:
        observer.close()


def test_it_asks_for_the_end_after_enough_steady_steps(job, watch):
    look = watch(20)
    job.steps(15)
    assert look()
    assert job.word == control.NEVER
    job.steps(10)
    assert look()
    assert job.word == 26, "one more than were made: the step under way is made whole"


@pytest.mark.parametrize(("ms", "asked"), [(2000, True), (100, False)])
def test_of_long_steps_a_few_do(job, watch, ms, asked):
    look = watch(40, few=(20, 20.0))
    job.steps(20, ms=ms)
    look()
    assert job.word == control.NEVER, "19 walls lie between 20 ends"
    job.steps(5, ms=ms)
    look()
    assert (job.word != control.NEVER) is asked


def test_warm_up_does_not_count(job, watch):
    look = watch(20)
    job.steps(5, ms=500)
    job.steps(19)
    look()
    assert job.word == control.NEVER
    job.steps(1)
    look()
    assert job.word == 26


def test_backward_passes_that_accumulate_are_no_steps(job, watch):
    look = watch(20)
    for _ in range(300):
        job.backwards(1)
        job.write(1, 0 << 8 | marks.CONTINUES)
    look()
    assert job.word == control.NEVER
    job.steps(25)
    look()
    assert job.word == 26


def test_a_rank_that_is_not_seen_yet_is_given_time_to_hear_it(job, watch):
    """On a busy machine the marks of the other rank may come late, and it would wait for one that has ended."""
    look = watch(20)
    job.steps(1)
    job.write(1, 2 << 8 | marks.WORLD)
    job.steps(25)
    look()
    assert job.word == 27 + 150, "one and a half seconds of steps that take 10 ms"


def test_files_of_workers_may_go_at_any_moment(job, monkeypatch):
    observer = Observer(job.folder, 20, steady_from, print)
    job.steps(10)
    for pid in range(100, 110):
        job.write(pid, 5 << 8 | marks.ITEMS)
    assert observer.tick(os.getpid())
    for pid in range(100, 110):
        (job.folder / f"{pid}.marks").unlink()
    job.write(200, 5 << 8 | marks.ITEMS)
    glob = type(job.folder).glob

    def glob_then_lose(folder, pattern):
        yield from list(glob(folder, pattern))
        (folder / "200.marks").unlink(missing_ok=True)

    monkeypatch.setattr(type(job.folder), "glob", glob_then_lose)
    job.steps(15)
    assert observer.tick(os.getpid()) and observer.tick(os.getpid())
    observer.close()
    assert job.word == 26
    assert {path.name for path in observer._tails} == {"1.marks"}, "those that are gone are forgotten"


def test_a_job_without_a_window_is_never_asked(job, watch, said):
    look = watch(None)
    job.steps(5000)
    assert look()
    assert job.word == control.NEVER
    assert said == ["5000 steps"]


def test_two_optimizers_of_one_step_count_once_but_the_word_counts_both(job, watch):
    look = watch(20)
    for _ in range(22):
        job.steps(1, optimizer=0, ms=5)
        job.steps(1, optimizer=1, ms=5)
    look()
    assert job.word == 45


def test_without_an_optimizer_backward_passes_are_steps(job, watch):
    look = watch(20)
    job.backwards(25)
    look()
    assert job.word == 26


def test_ranks_get_time_to_hear_it(job, watch):
    look = watch(20)
    for _ in range(25):
        job.steps(1, pid=1, ms=10)
        job.steps(1, pid=2, ms=0)
    look()
    assert job.word == 25 + 1 + 150, "a second and a half at ten milliseconds a step"


def test_workers_of_a_single_rank_need_no_time(job, watch):
    look = watch(20)
    job.write(2, marks.enter(Kind.FETCH), marks.leave(Kind.FETCH))
    job.steps(25)
    look()
    assert job.word == 26


def test_marks_are_read_as_they_come_even_half_of_one(job, watch):
    look = watch(20)
    job.steps(10)
    look()
    torn = array("q", [job.at + 10 * MS << 8 | STEP]).tobytes()
    with (job.folder / "1.marks").open("ab") as file:
        file.write(torn[:3])
    look()
    with (job.folder / "1.marks").open("ab") as file:
        file.write(torn[3:] + array("q", [marks.OPTIMIZER_ID]).tobytes())
    job.at += 10 * MS
    job.steps(11)
    look()
    assert job.word == 23


def test_a_job_that_does_not_hear_is_given_up_after_a_while(job, watch, monkeypatch):
    monkeypatch.setattr(observe, "_DEAF_AFTER_S", 0.0)
    monkeypatch.setattr(observe, "_DEAF_AFTER_STEPS", 0)
    look = watch(20)
    job.steps(25)
    assert not look()


def test_slow_steps_get_the_time_of_several(job, watch, monkeypatch):
    monkeypatch.setattr(observe, "_DEAF_AFTER_S", 0.0)
    look = watch(20)
    job.steps(25, ms=10_000)
    assert look()


def test_before_the_first_mark_there_is_nothing_to_say(watch, said):
    assert watch(20)()
    assert said == []
