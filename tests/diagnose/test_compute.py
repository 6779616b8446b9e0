from __future__ import annotations

from dataclasses import replace

import pytest

from hotlap.diagnose.compute import accelerates, dispatch_of, gpu_busy, loops, samples_per_pass
from hotlap.diagnose.syncs import is_looped, looped_share
from hotlap.facts.timeline import Stage, SyncPoint


def test_the_fixed_part_of_a_call(make):
    timeline = make.timeline(10.0, model=make.model(calls_per_step=95.0))
    dispatch = dispatch_of(make.sight(timeline))
    assert dispatch.call_us == pytest.approx(100.0, rel=0.02)
    assert dispatch.fixed == pytest.approx(0.25, rel=0.02)


def test_where_others_slow_the_steps_down_the_quickest_tenth_counts(make):
    slowed = [0.0 if index % 5 == 0 else 90.0 for index in range(200)]
    timeline = make.timeline(10.0, columns={Stage.FORWARD: slowed}, model=make.model(calls_per_step=95.0))
    alone = dispatch_of(make.sight(timeline))
    shared = dispatch_of(make.sight(replace(timeline, gauges=make.gauges(cpu=1.0, foreign_cpu=3.0))))
    assert alone.call_us > 700
    assert shared.call_us == pytest.approx(100.0, rel=0.05)


@pytest.mark.parametrize("changes", [{"compiled": True}, {"calls_per_step": None}, {"calls_per_step": 0.0}])
def test_calls_that_are_not_known_have_no_cost(make, changes):
    assert dispatch_of(make.sight(make.timeline(model=make.model(**changes)))) is None


def test_a_loop_calls_its_modules_again_and_again(make):
    assert loops(make.model(modules=3, calls_per_step=600.0))
    assert not loops(make.model(modules=300, calls_per_step=600.0))
    assert not loops(make.model(calls_per_step=None))


def test_samples_go_through_in_passes(make):
    steps = make.timeline().steps
    counted = replace(steps, samples=[64] * len(steps), micro=[4] * len(steps))
    uncounted = replace(steps, samples=[-1] * len(steps))
    assert samples_per_pass(make.timeline(steps=counted)) == 16
    assert samples_per_pass(make.timeline(steps=uncounted)) is None


def test_hardware_for_low_precision_is_that_of_the_model(make):
    on_cpu, on_gpu = make.timeline(), make.timeline(model=make.model(devices=("cuda:0",)))
    assert accelerates(make.gpu_host(), on_cpu) == ""
    assert accelerates(make.gpu_host(), on_gpu) == "a gpu"
    assert accelerates(make.host(cpu_bf16=True), on_gpu) == ""


def test_a_gpu_that_nobody_asked_is_not_idle(make):
    assert gpu_busy(make.gauges()) is None
    assert gpu_busy(make.gauges(3, gpu_busy=[0.1, 0.9, 0.5])) == 0.5


def test_only_lines_that_read_again_and_again_are_looped(make):
    line = make.line(Stage.OTHER, 0.5)
    often = make.timeline(syncs=(SyncPoint(line.place, ".item()", 205 * 10, 0.1),))
    once = make.timeline(syncs=(SyncPoint(line.place, ".item()", 205, 0.1),))
    assert is_looped(line, often)
    assert not is_looped(line, once)
    seen = make.timeline(40.0, {Stage.OTHER: 0.4}, lines=(line,), syncs=often.syncs)
    assert looped_share(seen, make.sight(seen).summary) == pytest.approx(0.2, rel=0.01)
