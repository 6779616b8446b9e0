"""From hand-written marks to steps: which moment belongs to which stage, and where a step ends."""

from __future__ import annotations

import random

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


def test_a_usual_loop(new_tape):
    seen = fold(new_tape().usual(5).raw)
    assert walls(seen) == [10] * 5
    shares = {stage: ms(seen, stage) for stage in Stage}
    assert shares == dict.fromkeys(Stage, 0) | {
        Stage.DATA: 2,
        Stage.FORWARD: 3,
        Stage.BACKWARD: 4,
        Stage.OPTIMIZER: 1,
    }
    steps = seen.columns.steps()
    assert list(steps.samples) == [32] * 5
    assert list(steps.tokens) == [-1] * 5
    assert list(steps.micro) == [1] * 5
    assert seen.boundary == "optimizer"
    assert seen.inferred == ()


def test_start_up_lasts_until_the_first_batch(new_tape):
    """A script prints, moves its model, builds a scheduler (which steps once) and saves, long before it trains."""
    setup = new_tape()
    setup.at = 100 * MS
    setup.play((Kind.LOG, 1), 50, (Kind.TRANSFER, 5), (Kind.OPTIMIZER, 1), (Kind.CHECKPOINT, 30))
    setup.moment(marks.TRAIN_ON)
    setup.at = START
    seen = fold(setup.usual(3).raw)
    assert seen.first == START
    assert walls(seen) == [10] * 3


def test_time_inside_a_stage_belongs_to_the_innermost_one(new_tape):
    tape = new_tape().usual().batch().play((F, 1, (Kind.LOG, 2), 1), (B, 3, (Kind.CHECKPOINT, 4)))
    seen = fold(tape.step().raw)
    assert ms(seen, Stage.FORWARD) == 2
    assert ms(seen, Stage.LOG) == 2
    assert ms(seen, Stage.BACKWARD) == 3
    assert ms(seen, Stage.CHECKPOINT) == 4


def test_a_frameworks_evaluation_loop_is_validation_down_to_its_steps_but_keeps_log_and_checkpoint(new_tape):
    inside = ((Kind.LOADER, 1), (D, 2), (E, 3), (Kind.LOG, 4), (Kind.CHECKPOINT, 5), 6)
    seen = fold(new_tape().usual().play((Kind.VALIDATE, *inside)).usual().raw)
    assert ms(seen, Stage.VALIDATE) == 1 + 2 + 3 + 6
    assert ms(seen, Stage.LOG) == 4
    assert ms(seen, Stage.CHECKPOINT) == 5
    assert ms(seen, Stage.DATA) == 2


def test_overlays_do_not_interrupt_a_stage(new_tape):
    tape = new_tape().usual().batch()
    tape.play((F, 1)).enter(Kind.SYNC).play(2).leave(Kind.SYNC).play((B, 1, (Kind.COLLECT, 3))).step()
    seen = fold(tape.raw)
    assert ms(seen, Stage.FORWARD) == 3, "the synchronisation is in the gap of the loss"
    assert ms(seen, Stage.BACKWARD) == 4
    assert [(end - start) / MS for start, end in seen.overlays[Kind.COLLECT]] == [3]
    assert [(end - start) / MS for start, end in seen.overlays[Kind.SYNC]] == [2]


def test_steps_that_compile_are_known(new_tape):
    tape = new_tape().usual().batch().play((F, 1, (Kind.COMPILE, 500), 1)).play((B, 4)).step().usual()
    assert fold(tape.raw).columns.compiled == [False, True, False]


# -- where a step ends ------------------------------------------------------------------------------------------------


def test_gradient_accumulation_is_one_step(new_tape):
    tape = new_tape()
    for _ in range(3):
        for _ in range(4):
            tape.batch(2, tokens=None).play((F, 2), (B, 3))
        tape.step()
    seen = fold(tape.raw)
    assert walls(seen) == [29] * 3
    assert list(seen.columns.micro) == [4] * 3
    assert list(seen.columns.samples) == [4 * 32] * 3


def test_activations_that_are_computed_again_are_no_further_backward_passes(new_tape):
    """Twelve blocks, each of which runs a backward pass of its own inside the one of the script."""
    tape = new_tape()
    for _ in range(3):
        tape.batch().play((F, 2), (B, 1, *[(B, 1)] * 12)).step()
    assert list(fold(tape.raw).columns.micro) == [1] * 3


def test_gradients_that_are_only_handed_out_are_no_backward_pass(new_tape):
    """torch.autograd.grad, as for a penalty or for the derivatives of an equation."""
    tape = new_tape()
    for _ in range(3):
        tape.batch()
        for _ in range(12):
            tape.play((F, 1), (B, 1)).fact(marks.GRADIENTS, 0)
        tape.play((F, 1), (B, 2)).step()
    assert list(fold(tape.raw).columns.micro) == [1] * 3


def test_a_script_that_updates_by_hand_trains_with_gradients_that_are_handed_out(new_tape):
    tape = new_tape()
    for _ in range(4):
        tape.batch(2).play((F, 2), (B, 3)).fact(marks.GRADIENTS, 0)
    assert len(fold(tape.raw).columns.wall) >= 3


def test_tokens_counted_in_one_of_several_batches_speak_for_the_step(new_tape):
    tape = new_tape()
    for _ in range(2):
        for micro in range(4):
            tape.batch(tokens=100 if micro == 1 else None).play((F, 2), (B, 3))
        tape.step()
    seen = fold(tape.raw)
    assert list(seen.columns.tokens) == [400] * 2
    assert list(seen.columns.padded) == [20] * 2


def test_of_two_optimizers_that_take_turns_the_last_ends_the_step(new_tape):
    tape = new_tape()
    for _ in range(4):
        tape.batch().play((F, 1), (B, 2)).step(1, optimizer=0).play((F, 1), (B, 2)).step(1, optimizer=1)
    seen = fold(tape.raw)
    assert walls(seen) == [9] * 4
    assert list(seen.columns.micro) == [2] * 4
    assert seen.optimizer_steps == {0: 4, 1: 4}


def test_a_critic_that_steps_more_often_sets_the_pace(new_tape):
    tape = new_tape()
    for number in range(10):
        tape.usual(1, optimizer=0)
        if number % 5 == 4:
            tape.play((F, 2), (B, 4)).step(1, optimizer=1)
    assert len(fold(tape.raw).columns.wall) == 10


def test_optimizers_that_follow_one_another_all_end_steps(new_tape):
    """One optimizer per fold or per phase: none of them spans the run."""
    tape = new_tape().usual(5, optimizer=0).usual(5, optimizer=1).usual(5, optimizer=2)
    assert sum(walls(fold(tape.raw))) == 150
    assert max(walls(fold(tape.raw))) <= 20


def test_a_closure_is_called_many_times_within_one_step(new_tape):
    tape = new_tape()
    for _ in range(3):
        inside = [(Kind.OPTIMIZER, 1), (F, 2), 1, (B, 3), 0.5] * 4
        tape.batch(2).play((S, 1, *inside)).fact(marks.OPTIMIZER_ID, 0)
    seen = fold(tape.raw)
    assert walls(seen) == [2 + 1 + 4 * 7.5] * 3
    assert list(seen.columns.micro) == [4] * 3
    assert ms(seen, Stage.FORWARD) == 4 * 3, "the loss counts to it, though the optimizer is open around it"
    assert ms(seen, Stage.BACKWARD) == 12
    assert ms(seen, Stage.OPTIMIZER) == 1 + 4 * 1.5


def test_without_an_optimizer_a_step_ends_when_the_next_batch_begins(new_tape):
    tape = new_tape()
    for _ in range(4):
        tape.batch(2).play((F, 3), (B, 4), 1)
    seen = fold(tape.batch().raw)
    assert seen.boundary == "backward"
    assert walls(seen) == [10] * 4
    assert ms(seen, Stage.OPTIMIZER) == 1
    assert seen.inferred == (Stage.OPTIMIZER,)


def test_without_an_optimizer_the_last_step_ends_with_the_run(new_tape):
    tape = new_tape()
    for _ in range(4):
        tape.batch(2).play((F, 3), (B, 4))
    assert walls(fold(tape.raw)) == [9] * 4


def test_without_a_loader_the_gap_before_forward_is_data(new_tape):
    tape = new_tape()
    for _ in range(4):
        tape.play(3, (Kind.OPTIMIZER, 1), (F, 3), (B, 4)).step(2)
    seen = fold(tape.raw)
    assert ms(seen, Stage.DATA) == 3
    assert seen.inferred == (Stage.DATA,)


# -- all of it ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_stages_add_up_to_walls_and_walls_to_the_run(new_tape, seed):
    draw = random.Random(seed)
    tape = new_tape()
    has_loader, has_optimizer = draw.random() < 0.8, draw.random() < 0.8
    for _ in range(draw.randrange(2, 12)):
        _random_step(draw, tape, has_loader, has_optimizer)
    seen = fold(tape.raw)
    steps = seen.columns.steps()
    for row, wall in enumerate(steps.wall):
        assert sum(column[row] for column in steps.stages.values()) == wall
        assert all(column[row] >= 0 for column in steps.stages.values())
    ends = [start + wall for start, wall in zip(steps.start, steps.wall, strict=True)]
    assert ends[:-1] == list(steps.start[1:])
    assert all(start <= end for start, end, _ in seen.spans)
    assert sum(end - start for start, end, _ in seen.spans) == sum(steps.wall)


def _random_step(draw: random.Random, tape, has_loader: bool, has_optimizer: bool) -> None:
    nested = [Kind.LOG, Kind.CHECKPOINT, Kind.TRANSFER, Kind.SYNC, Kind.COLLECT, Kind.OPTIMIZER]

    def work(kind: Kind, depth: int = 0) -> tuple:
        inner = [work(draw.choice(nested), depth + 1) for _ in range(draw.randrange(3))] if depth < 2 else []
        parts = [draw.random() * 3 for _ in range(3)] + inner
        draw.shuffle(parts)
        return (kind, *parts)

    for _ in range(draw.randrange(1, 4)):
        tape.play(draw.random())
        if has_loader:
            tape.batch(draw.random() * 3, samples=draw.choice([None, 8]))
        if draw.random() < 0.3:
            tape.moment(draw.choice([marks.EVAL_ON, marks.TRAIN_ON]))
        tape.play(*[work(draw.choice([F, E, *nested])) for _ in range(draw.randrange(1, 4))])
        tape.play(draw.random(), work(B), draw.random())
    if has_optimizer:
        tape.step(draw.random(), optimizer=draw.choice([0, 0, 0, 1]))
