"""Gives every moment of one step a stage: gaps by their neighbours, validation by its batches and brackets."""

import pytest

from hotlap.facts.timeline import Stage
from hotlap.probe.marks import EVAL_ON, TRAIN_ON, Kind
from hotlap.timeline.segments import GAP, Segment, Traits, name_gaps


def named(*kinds, samples=()):
    """The names that one step's segments get; `samples` are the indices of fetches that brought a batch."""
    segments = [Segment(start, start + 1, kind) for start, kind in enumerate(kinds)]
    for index in samples:
        segments[index].samples = 32
    name_gaps(segments, Traits())
    return [segment.kind for segment in segments]


def test_the_batch_fetched_before_train_is_called_is_the_trainings():
    kinds = named(
        EVAL_ON,
        Kind.DATA,
        Kind.EVAL_FORWARD,
        Kind.DATA,
        GAP,
        Kind.LOADER,
        Kind.DATA,
        TRAIN_ON,
        Kind.FORWARD,
        Kind.BACKWARD,
        Kind.STEP,
        samples=(1, 6),
    )
    validate = Kind.VALIDATE
    assert kinds[1:7] == [validate, validate, validate, validate, Kind.LOADER, Kind.DATA]


def test_the_fetch_that_finds_the_loader_exhausted_is_validation():
    kinds = named(
        EVAL_ON,
        Kind.DATA,
        Kind.EVAL_FORWARD,
        Kind.DATA,
        GAP,
        TRAIN_ON,
        Kind.DATA,
        Kind.FORWARD,
        Kind.BACKWARD,
        Kind.STEP,
        samples=(1, 6),
    )
    assert kinds[1:5] == [Kind.VALIDATE] * 4
    assert kinds[6] == Kind.DATA


@pytest.mark.parametrize("fetched", [True, False])
def test_a_frameworks_evaluation_ends_with_its_loop(fetched):
    kinds = named(
        EVAL_ON,
        Kind.VALIDATE,
        Kind.LOG,
        GAP,
        Kind.DATA,
        TRAIN_ON,
        Kind.FORWARD,
        Kind.BACKWARD,
        Kind.STEP,
        samples=(4,) if fetched else (),
    )
    assert kinds[1:5] == [Kind.VALIDATE, Kind.LOG, GAP, Kind.DATA]


# -- the gaps of a step: one gap, one name ----------------------------------------------------------------------------


def gap_between(before, after, traits=None, seen=()):
    """What a gap is called between two segments; `seen` comes earlier in the same step."""
    segments = [Segment(at, at + 1, kind) for at, kind in enumerate([*seen, before, GAP, after])]
    name_gaps(segments, traits or Traits())
    return segments[-2].kind


@pytest.mark.parametrize("after", [Kind.BACKWARD, Kind.FORWARD, Kind.OPTIMIZER, Kind.STEP])
def test_after_forward_comes_the_loss(after):
    assert gap_between(Kind.FORWARD, after) == Kind.FORWARD


@pytest.mark.parametrize("before", [Kind.BACKWARD, Kind.OPTIMIZER])
@pytest.mark.parametrize("after", [Kind.OPTIMIZER, Kind.STEP])
def test_between_backward_and_the_update_lies_clipping(before, after):
    assert gap_between(before, after, seen=[Kind.BACKWARD]) == Kind.OPTIMIZER


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Kind.DATA, Kind.FORWARD),
        (Kind.STEP, Kind.DATA),
        (Kind.FORWARD, Kind.DATA),
        (Kind.OPTIMIZER, Kind.FORWARD),
        (Kind.VALIDATE, Kind.DATA),
        (Kind.CHECKPOINT, Kind.DATA),
        (Kind.BACKWARD, Kind.DATA),
    ],
)
def test_other_gaps_stay_gaps(before, after):
    assert gap_between(before, after) == GAP


def test_without_a_loader_what_precedes_forward_is_data():
    traits = Traits(has_loader=False)
    assert gap_between(Kind.STEP, Kind.FORWARD, traits) == Kind.DATA
    assert gap_between(Kind.STEP, Kind.OPTIMIZER, traits) == Kind.DATA, (
        "zero_grad may come before the batch is used"
    )
    assert traits.inferred == {Stage.DATA}


def test_without_a_loader_a_second_forward_after_backward_is_not_fed_by_data():
    assert gap_between(Kind.STEP, Kind.FORWARD, Traits(has_loader=False), seen=[Kind.BACKWARD]) == GAP


def test_without_an_optimizer_what_follows_backward_is_the_update():
    traits = Traits(has_optimizer=False)
    assert gap_between(Kind.BACKWARD, Kind.DATA, traits) == Kind.OPTIMIZER
    assert traits.inferred == {Stage.OPTIMIZER}


def test_where_no_module_was_called_what_leads_to_backward_is_forward():
    traits = Traits()
    assert gap_between(Kind.DATA, Kind.BACKWARD, traits) == Kind.FORWARD
    assert traits.inferred == {Stage.FORWARD}


def test_a_log_inside_a_gap_keeps_its_name_and_divides_nothing():
    kinds = named(Kind.DATA, Kind.FORWARD, GAP, Kind.LOG, GAP, Kind.TRANSFER, GAP, Kind.BACKWARD, Kind.STEP)
    forward = Kind.FORWARD
    assert kinds[2:7] == [forward, Kind.LOG, forward, Kind.TRANSFER, forward]


def test_the_loss_inside_a_closure_is_forward_though_the_step_is_open():
    kinds = named(Kind.DATA, Kind.STEP, Kind.FORWARD, Kind.STEP, Kind.BACKWARD, Kind.STEP)
    assert kinds[1:] == [Kind.STEP, Kind.FORWARD, Kind.FORWARD, Kind.BACKWARD, Kind.STEP]


# -- validation -------------------------------------------------------------------------------------------------------


def test_batches_that_met_only_forwards_without_gradients_are_validation():
    """torch.no_grad() alone, without a call of eval()."""
    kinds = named(
        Kind.DATA, Kind.EVAL_FORWARD, GAP, Kind.DATA, Kind.EVAL_FORWARD, Kind.DATA, GAP,
        Kind.DATA, Kind.FORWARD, Kind.BACKWARD, Kind.STEP, samples=(0, 3, 7),
    )  # fmt: skip
    assert kinds[:7] == [Kind.VALIDATE] * 7
    assert kinds[7:] == [Kind.DATA, Kind.FORWARD, Kind.BACKWARD, Kind.STEP]


def test_a_teachers_forward_is_forward():
    kinds = named(Kind.DATA, Kind.EVAL_FORWARD, Kind.FORWARD, Kind.BACKWARD, Kind.STEP, samples=(0,))
    assert kinds == [Kind.DATA, Kind.FORWARD, Kind.FORWARD, Kind.BACKWARD, Kind.STEP]


def test_a_script_that_trains_in_eval_mode_trains():
    kinds = named(EVAL_ON, Kind.DATA, Kind.EVAL_FORWARD, GAP, Kind.BACKWARD, Kind.STEP, samples=(1,))
    assert kinds[1:] == [Kind.DATA, Kind.FORWARD, Kind.FORWARD, Kind.BACKWARD, Kind.STEP]


def test_eval_and_train_without_a_batch_in_between_are_still_a_bracket():
    """A few generated samples, drawn without any loader."""
    kinds = named(EVAL_ON, GAP, Kind.EVAL_FORWARD, GAP, TRAIN_ON, Kind.DATA, Kind.FORWARD, Kind.BACKWARD)
    assert kinds[1:4] == [Kind.VALIDATE] * 3


def test_log_and_checkpoint_keep_their_names_inside_validation():
    kinds = named(
        EVAL_ON, Kind.DATA, Kind.EVAL_FORWARD, Kind.LOG, Kind.CHECKPOINT, GAP, TRAIN_ON, samples=(1,)
    )
    assert kinds[1:6] == [Kind.VALIDATE, Kind.VALIDATE, Kind.LOG, Kind.CHECKPOINT, Kind.VALIDATE]


def test_a_frozen_part_put_in_eval_mode_within_a_step_opens_no_bracket():
    kinds = named(Kind.DATA, EVAL_ON, Kind.FORWARD, GAP, Kind.BACKWARD, TRAIN_ON, Kind.STEP, samples=(0,))
    assert Kind.VALIDATE not in kinds


def test_an_eval_that_was_never_answered_is_no_validation():
    kinds = named(EVAL_ON, GAP, Kind.DATA, Kind.FORWARD, Kind.BACKWARD, Kind.STEP, samples=(2,))
    assert Kind.VALIDATE not in kinds


def test_what_was_cut_off_would_have_gone_on_with_a_forward_pass():
    segments = [Segment(0, 1, Kind.STEP), Segment(1, 2, GAP)]
    name_gaps(segments, Traits(has_loader=False), cut_off=True)
    assert segments[1].kind == Kind.DATA
