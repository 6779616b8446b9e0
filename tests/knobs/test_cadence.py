"""Knobs of trainers' options and of several ranks: when they are proposed, what they say where they cannot act."""

from dataclasses import replace

import pytest

from hotlap.facts.timeline import Cadence, Ending, Runtime, Stage, Steps
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
        seen = {"steps": steps, "steady_from": 0, "cadences": cadences, "ending": Ending.WINDOW}
        return replace(compute_timeline(), **{**seen, **changes})

    return make


@pytest.mark.parametrize(
    ("kind", "proposed"),
    [(LogEvery, (50,)), (ValidateEvery, (20,)), (CheckpointEvery, (20,)), (LimitValidation, (0.25,))],
)
def test_what_came_is_proposed_to_come_more_rarely(kind, proposed, host, timeline):
    seen = timeline(CADENCE[kind], runtime=Runtime(1, framework="lightning"))
    assert kind().settings(host, seen) == proposed
    assert kind().ceiling(seen, host) == pytest.approx(0.3)


@pytest.mark.parametrize("framework", ["plain", "accelerate"])
@pytest.mark.parametrize("kind", CADENCE)
def test_a_loop_of_the_scripts_own_has_no_option_to_set(kind, framework, host, timeline):
    seen = timeline(CADENCE[kind], runtime=Runtime(1, framework=framework))
    assert kind().settings(host, seen) == ()


def test_what_came_once_has_no_cadence_to_stretch(host, timeline):
    once = replace(
        timeline(Stage.VALIDATE, runtime=Runtime(1, framework="lightning")),
        cadences=(Cadence(Stage.VALIDATE, 1, 0.03, None),),
    )
    assert ValidateEvery().settings(host, once) == ()


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


def test_no_bucket_size_is_advised_that_is_torchs_default(host, timeline):
    assert 25 not in DdpBuckets().settings(host, timeline(world=4, comm_s=0.02))


@pytest.mark.parametrize("kind", [LogEvery, ValidateEvery, CheckpointEvery])
def test_no_cadence_is_advised_that_is_longer_than_the_run(kind, host, timeline):
    """The whole run was seen, and has ten steps; of a window nobody knows how long the run goes on."""
    runtime = Runtime(1, framework="lightning")
    assert kind().settings(host, timeline(CADENCE[kind], runtime=runtime, ending=Ending.FINISHED)) == ()
    assert kind().settings(host, timeline(CADENCE[kind], runtime=runtime, ending=Ending.WINDOW))
