"""Columns of steps: samples of training batches, tokens projected over accumulated ones, time after the last step."""

from __future__ import annotations

from hotlap.facts.timeline import Stage
from hotlap.probe.marks import Kind
from hotlap.timeline.segments import STAGES, Columns, LoaderUse, Segment

NOTHING = [0] * len(STAGES)


def batch(samples=-1, tokens=-1, padded=-1, kind=Kind.DATA, loader=0):
    return Segment(0, 5, kind, samples, tokens, padded, loader)


def step_of(*segments, stages=NOTHING):
    columns = Columns()
    columns.append(100, 150, stages, segments, micro=len(segments), compiled=False)
    return columns


def test_a_step_has_its_start_its_wall_and_its_micro_batches():
    steps = step_of(batch(8), batch(8)).steps()
    assert (list(steps.start), list(steps.wall), list(steps.micro)) == ([100], [50], [2])


def test_samples_of_accumulated_batches_add_up():
    assert list(step_of(batch(8), batch(6)).samples) == [14]


def test_a_batch_of_unknown_size_is_not_one_of_none():
    assert list(step_of(batch(8), batch()).samples) == [8]
    assert list(step_of(batch()).samples) == [-1]
    assert list(step_of().samples) == [-1]


def test_validation_batches_and_opened_loaders_are_no_training_samples():
    columns = step_of(batch(8), batch(100, kind=Kind.VALIDATE), batch(100, loader=-1))
    assert list(columns.samples) == [8]


def test_tokens_that_were_counted_in_some_batches_speak_for_the_step():
    columns = step_of(batch(8, tokens=100, padded=20), batch(8), batch(8), batch(8))
    assert list(columns.tokens) == [400]
    assert list(columns.padded) == [80]
    assert list(step_of(batch(8)).tokens) == [-1]


def test_time_after_the_last_step_belongs_to_it_and_stages_still_add_up():
    stages = [10, 0, 20, 20, *[0] * (len(STAGES) - 4)]
    columns = step_of(batch(8), stages=stages)
    tail = [0] * len(STAGES)
    tail[STAGES.index(Stage.VALIDATE)] = 70
    columns.extend_last(tail)
    steps = columns.steps()
    assert steps.wall[0] == 120 == sum(column[0] for column in steps.stages.values())
    assert steps.stages[Stage.VALIDATE][0] == 70


def test_a_loader_knows_starts_from_batches_and_training_from_validation():
    use = LoaderUse()
    opened = batch()
    opened.opens = True
    for segment in (opened, batch(8), batch(8), batch(8, kind=Kind.VALIDATE)):
        use.add(segment)
    assert (use.batches, use.validation_batches) == (2, 1)
    assert (use.startup_ns, use.wait_ns, use.starts) == (5, 15, [0])
