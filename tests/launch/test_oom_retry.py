"""Which failures are worth another start, and with which plan."""

import pytest

from hotlap.facts.plan import Plan
from hotlap.launch.oom_retry import corrected, left_alone, settled, steps_down
from hotlap.launch.process import Outcome
from hotlap.plan.record import Record

CRASHED = Outcome(1, 1.0, 0)
KILLED = Outcome(137, 1.0, 0, by_signal=9)
OUT_OF_MEMORY = {"fault": {"kind": "out-of-memory", "step": 3}}


def record(steps=3, **notes):
    return Record(1, 0, steps=steps, notes={"optimizers": ["SGD"], **notes})


@pytest.mark.parametrize(
    ("batch", "plan", "smaller", "accumulate"),
    [
        (64, {}, 32, 2),
        (32, {"batch-size": 32, "accumulate": 2}, 16, 4),
        (32, {"accumulate": 3}, 16, 6),
        (33, {}, 11, 3),
        (7, {}, 1, 7),
        (15, {"batch-size": 15, "accumulate": 2}, 6, 5),
    ],
)
def test_the_micro_batch_shrinks_and_the_effective_batch_stays(batch, plan, smaller, accumulate):
    given = Plan({"num-workers": 2, **plan})
    after = corrected(CRASHED, given, [record(batch=batch, **OUT_OF_MEMORY)])
    assert after.settings == {"num-workers": 2, "batch-size": smaller, "accumulate": accumulate}
    assert smaller * accumulate == batch * plan.get("accumulate", 1)


@pytest.mark.parametrize("notes", [{"fault": {"kind": "other", "step": 3}}, {}])
def test_other_failures_are_the_scripts_own(notes):
    records = [record(batch=64, **notes)]
    assert corrected(CRASHED, Plan(), records) is None
    assert left_alone(CRASHED, Plan(), records) == ""


@pytest.mark.parametrize(
    ("plan", "notes", "reason"),
    [
        ({}, {}, "no DataLoader"),
        ({}, {"batch": 1}, "one sample"),
        ({"batch-size": 32}, {"batch": 64}, "batches of 64 are not those of the plan"),
        ({}, {"batch": 8, "optimizers": ["Adam", "SGD"]}, "the script has Adam, SGD"),
        ({}, {"batch": 8, "optimizers": ["LBFGS"]}, "the script has LBFGS"),
        ({}, {"batch": 8, "optimizers": []}, "no optimizer of torch"),
    ],
)
def test_what_cannot_be_made_smaller_is_told(plan, notes, reason):
    records = [record(**OUT_OF_MEMORY, **notes)]
    assert corrected(CRASHED, Plan(plan), records) is None
    assert "out of memory, and it is not started again" in left_alone(CRASHED, Plan(plan), records)
    assert reason in left_alone(CRASHED, Plan(plan), records)
    assert left_alone(Outcome(137, 1.0, 0, interrupted=True), Plan(plan), records) == ""
    assert left_alone(Outcome(0, 1.0, 0), Plan(plan), records) == ""


def test_a_kill_counts_as_out_of_memory():
    assert corrected(KILLED, Plan(), [record(batch=8)]).settings == {"batch-size": 4, "accumulate": 2}
    by_launcher = [record(batch=8), record(fault={"kind": "killed", "step": 0})]
    assert corrected(CRASHED, Plan(), by_launcher).settings == {"batch-size": 4, "accumulate": 2}
    assert corrected(KILLED, Plan(), []) is None


def test_what_is_told_before_the_next_start():
    records = [record(steps=10, batch=64, saved=8, **OUT_OF_MEMORY)]
    after = corrected(CRASHED, Plan({"tf32": True}), records)
    batch, accumulate = steps_down(Plan({"tf32": True}), after, records)
    assert (batch.knob, batch.before, batch.after, batch.step) == ("batch-size", 64, 32, 11)
    assert (accumulate.knob, accumulate.before, accumulate.after) == ("accumulate", 1, 2)
    assert "since it saved at step 8 are lost (2), or all 10" in batch.reason
    assert "64 samples" in accumulate.reason


@pytest.mark.parametrize(
    ("failed", "next_start", "lost"),
    [({"saved": 8}, {"loaded": True}, 2), ({"saved": 8}, {}, 10), ({}, {"loaded": True}, 10), ({}, {}, 10)],
)
def test_what_was_lost_shows_once_it_has_begun_again(failed, next_start, lost):
    records = [record(steps=10, batch=64, **failed, **OUT_OF_MEMORY)]
    downs = steps_down(Plan(), corrected(CRASHED, Plan(), records), records)
    assert {each.lost for each in downs} == {None}
    assert {each.lost for each in settled(downs, records, [record(**next_start)])} == {lost}
