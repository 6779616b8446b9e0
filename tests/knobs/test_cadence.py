"""Knobs of trainers' options and of several ranks: when they are proposed, what they say where they cannot act."""

from dataclasses import replace

import pytest

from hotlap.facts.timeline import Cadence, Runtime, Stage, Steps
from hotlap.knobs.accumulate import Accumulate
from hotlap.knobs.checkpoint_every import CheckpointEvery
from hotlap.knobs.ddp_buckets import DdpBuckets
from hotlap.knobs.limit_validation import LimitValidation
from hotlap.knobs.log_every import LogEvery
from hotlap.knobs.monitor_budget import MonitorBudget
from hotlap.knobs.scale_lr import ScaleLr
from hotlap.knobs.static_graph import StaticGraph
from hotlap.knobs.sync_batchnorm import SyncBatchNorm
from hotlap.knobs.validate_every import ValidateEvery
from hotlap.ports.knob import CannotActError
from hotlap.ports.target import Trainer
from hotlap.seams.fitter import Fitter

CADENCE = {
    LogEvery: Stage.LOG,
    ValidateEvery: Stage.VALIDATE,
    LimitValidation: Stage.VALIDATE,
    CheckpointEvery: Stage.CHECKPOINT,
}


@pytest.fixture
def host(compute_host):
    return compute_host()


@pytest.fixture
def timeline(compute_timeline):
    """Ten steps of 10 ms, 3 ms of them in the stage; which came each fifth step."""

    def make(stage=Stage.LOG, **changes):
        wall, some = [10_000_000] * 10, [3_000_000] * 10
        rest = [7_000_000] * 10
        nothing = [-1] * 10
        steps = Steps(
            range(10), wall, {stage: some, Stage.FORWARD: rest}, nothing, nothing, nothing, [1] * 10
        )
        cadences = (Cadence(stage, 2, 0.03, 5.0),)
        return replace(compute_timeline(), steps=steps, steady_from=0, cadences=cadences, **changes)

    return make


@pytest.mark.parametrize(
    ("kind", "proposed"),
    [(LogEvery, (50,)), (ValidateEvery, (20,)), (CheckpointEvery, (20,)), (LimitValidation, (0.25,))],
)
def test_what_came_is_proposed_to_come_more_rarely(kind, proposed, host, timeline):
    seen = timeline(CADENCE[kind])
    assert kind().settings(host, seen) == proposed
    assert kind().ceiling(seen, host) == pytest.approx(0.3)


@pytest.mark.parametrize("kind", CADENCE)
def test_what_never_came_is_not_proposed(kind, host, timeline):
    seen = timeline(Stage.OTHER)
    assert kind().settings(host, seen) == ()
    assert kind().ceiling(seen, host) == 0.0


def test_monitors_are_thinned_where_there_are_callbacks(host, timeline):
    assert MonitorBudget().settings(host, timeline(runtime=Runtime(1))) == ()
    assert MonitorBudget().settings(host, timeline(runtime=Runtime(1, framework="lightning"))) == (0.02,)


@pytest.mark.parametrize("kind", [DdpBuckets, StaticGraph])
def test_ranks_that_wait_for_each_other(kind, host, timeline):
    alone, several = timeline(world=1), timeline(world=4, comm_s=0.02)
    assert kind().settings(host, alone) == ()
    assert kind().ceiling(alone, host) == 0.0
    assert kind().settings(host, several)
    assert kind().ceiling(several, host) == pytest.approx(0.2)


@pytest.mark.parametrize("kind", [Accumulate, ScaleLr, SyncBatchNorm])
def test_what_saves_no_time_is_never_proposed_for_it(kind, host, timeline):
    assert kind().settings(host, timeline()) == ()
    assert kind().ceiling(timeline(), host) == 0.0


@pytest.mark.parametrize("kind", [*CADENCE, MonitorBudget])
def test_a_loop_of_ones_own_is_told_why_and_what_to_do(kind):
    knob = kind()
    setting = knob.values.read(1)
    (record,) = Fitter({knob.id: setting}, {knob.id: knob}).unmet()
    assert not record.acts
    assert "by itself, in a loop of its own" in record.reason
    assert record.reason.partition(": ")[2]  # the remedy


def test_a_trainer_without_the_option_is_named():
    with pytest.raises(CannotActError, match="fabric has no option"):
        LogEvery().apply(Trainer("fabric", {}), 10)
    taken = []
    undo = LogEvery().apply(Trainer("lightning", {"log-every": lambda each: taken.append(each) or list}), 10)
    assert (taken, undo) == ([10], list)
