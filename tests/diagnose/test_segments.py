"""Where validation ends in a loop that calls train() late."""

import pytest

from hotlap.diagnose.segments import GAP, Segment, Traits, name_gaps
from hotlap.probe.marks import EVAL_ON, TRAIN_ON, Kind


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
