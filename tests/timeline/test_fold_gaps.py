"""What is missing from the marks, and what comes after the last step."""

from __future__ import annotations

import pytest

from hotlap.facts.timeline import Stage
from hotlap.probe import marks
from hotlap.probe.marks import Kind
from hotlap.timeline.fold import fold

MS = 1_000_000
START = 2_000 * MS  # the origin is before the process: imports come first
D, F, E, B, S = Kind.DATA, Kind.FORWARD, Kind.EVAL_FORWARD, Kind.BACKWARD, Kind.STEP


def ms(folded, stage, row=-1):
    return folded.columns.steps().stages[stage][row] / MS


def walls(folded):
    return [wall / MS for wall in folded.columns.wall]


# -- what is missing ---------------------------------------------------------------------------------------------------


def test_dropped_steps_are_counted_and_no_step_spans_them(new_tape):
    tape = new_tape().usual(5)
    kept = tape.usual().raw[-9:]  # this step was under way when its window was dropped
    del tape.raw[-9:]
    tape.raw += kept[:3]
    tape.fact(marks.DROPPED, 40)
    tape.at += 400 * MS
    tape.play((B, 4)).step()  # the end of a step whose beginning was dropped
    seen = fold(tape.usual(5).raw)
    assert walls(seen) == [10] * 10
    assert seen.dropped_steps == 41
    assert seen.last == tape.at


def test_a_drop_between_a_step_and_the_name_of_its_optimizer(new_tape):
    tape = new_tape().usual(3).fact(marks.DROPPED, 7).fact(marks.OPTIMIZER_ID, 0)
    tape.at += 100 * MS
    seen = fold(tape.usual(4).raw)
    assert walls(seen) == [10] * 6
    assert seen.dropped_steps == 7 + 2


def test_steps_dropped_at_the_end(new_tape):
    tape = new_tape().usual(3)
    seen = fold(tape.fact(marks.DROPPED, 7).raw, tape.at + 500 * MS, cut_off=True)
    assert (walls(seen), seen.dropped_steps) == ([10] * 3, 7)
    assert seen.last == tape.at


def test_nothing_at_all():
    seen = fold([])
    assert len(seen.columns.wall) == 0
    assert (seen.first, seen.last) == (0, 0)


def test_marks_without_a_step(new_tape):
    assert len(fold(new_tape().batch().play((F, 2)).raw, START + 100 * MS).columns.wall) == 0


# -- after the last step -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut_off", [True, False])
def test_a_data_stall_that_was_cut_off_is_counted(new_tape, cut_off):
    tape = new_tape().usual(5).enter(D)
    seen = fold(tape.raw, tape.at + 90 * MS, cut_off=cut_off)
    assert walls(seen) == [10] * 4 + [100]
    assert ms(seen, Stage.DATA) == 2 + 90


def test_without_a_loader_a_stall_that_was_cut_off_is_data_too(new_tape):
    tape = new_tape()
    for _ in range(4):
        tape.play(3, (F, 3), (B, 4)).step(2)
    seen = fold(tape.raw, tape.at + 80 * MS, cut_off=True)
    assert ms(seen, Stage.DATA) == 3 + 80


def test_validation_and_checkpoint_after_the_last_step_belong_to_it(new_tape):
    tape = new_tape().usual(5).moment(marks.EVAL_ON)
    for _ in range(6):
        tape.batch(5).play((E, 5))
    tape.moment(marks.TRAIN_ON).play((Kind.CHECKPOINT, 7))
    seen = fold(tape.raw)
    assert ms(seen, Stage.VALIDATE) == 60
    assert ms(seen, Stage.CHECKPOINT) == 7
    assert walls(seen) == [10] * 4 + [77]
    assert seen.loaders[0].validation_batches == 6


def test_what_a_script_does_unnamed_after_its_last_step_belongs_to_no_step(new_tape):
    tape = new_tape().usual(5).play(500, (Kind.LOG, 1))
    seen = fold(tape.raw, tape.at + 500 * MS)
    assert walls(seen) == [10] * 5
    assert max(end for _, end, _ in seen.spans) <= START + 50 * MS


# -- loaders -----------------------------------------------------------------------------------------------------------


def test_what_each_loader_was_used_for(new_tape):
    tape = new_tape().play((Kind.LOADER, 7)).fact(marks.LOADER_ID, 0)
    for _ in range(4):
        tape.batch(2, samples=None).play((F, 2), (B, 4)).step()
    tape.play((Kind.LOADER, 3)).fact(marks.LOADER_ID, 1).batch(1, loader=1).play((E, 2)).batch(1, loader=1)
    tape.play((E, 2), (D, 1)).usual()
    seen = fold(tape.raw)
    train, valid = seen.loaders[0], seen.loaders[1]
    assert (train.batches, train.validation_batches) == (5, 0)
    assert (train.wait_ns / MS, train.startup_ns / MS) == (10, 7), "a batch of unknown size is no start"
    assert train.starts == [START]
    assert (valid.batches, valid.validation_batches) == (0, 2)
    assert (valid.wait_ns / MS, valid.startup_ns / MS) == (2, 3)


def test_a_batch_that_took_no_time_keeps_its_own_facts(new_tape):
    tape = new_tape().usual().batch(0, samples=64).play((F, 2), (B, 4)).step()
    assert list(fold(tape.raw).columns.samples) == [32, 64]
