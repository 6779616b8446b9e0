from __future__ import annotations

from dataclasses import replace

import pytest

from hotlap.diagnose.compute import (
    accelerates,
    device_busy,
    dispatch_of,
    element_lines,
    loops,
    samples_per_pass,
)
from hotlap.facts.timeline import DeviceTime, Stage, SyncPoint


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
    assert loops(make.timeline(model=make.model(modules=3, calls_per_step=600.0)))
    assert not loops(make.timeline(model=make.model(modules=300, calls_per_step=600.0)))
    assert not loops(make.timeline(model=make.model(calls_per_step=None)))


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
    assert device_busy(make.timeline(gauges=make.gauges())) is None
    assert device_busy(make.timeline(gauges=make.gauges(3, gpu_busy=[0.1, 0.9, 0.5]))) == 0.5


def test_events_at_the_borders_of_parts_see_no_breaks_within_one(make):
    timeline = make.timeline(device=DeviceTime(0.75, {Stage.DATA: 0.25}))
    assert device_busy(timeline) == 0.75
    assert device_busy(timeline, breaks=True) is None


def element_loop(make, reads, share=0.4, **changes):
    """A line outside of all stages that reads so many elements a step, at 40 ms a step."""
    line = make.line(Stage.OTHER, 0.5)
    point = SyncPoint(line.place, ".item()", 205 * reads, 0.001)
    return make.timeline(40.0, {Stage.OTHER: share}, lines=(line,), syncs=(point,), **changes)


@pytest.mark.parametrize(("reads", "found"), [(512, 1), (64, 1), (8, 0), (1, 0)])
def test_only_a_line_whose_time_fits_to_its_reads_loops_over_elements(make, reads, found):
    """8 ms a step: 64 reads take 0.12 ms each, eight of them would take a millisecond."""
    timeline = element_loop(make, reads)
    assert len(element_lines(timeline, make.sight(timeline).summary)) == found
