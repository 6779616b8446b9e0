from __future__ import annotations

from dataclasses import replace

from hotlap.experiments.leads import candidates_for
from hotlap.facts.timeline import OptimizerFacts, Runtime, Stage
from hotlap.plan.catalogue import all_knobs

KNOBS = tuple(all_knobs().values())


def tried(make, timeline, **host):
    return candidates_for([timeline], make.host(**host), KNOBS)


def test_what_attacks_most_comes_first(make):
    timeline = make.fed(40.0, 0.6, optimizers=(OptimizerFacts("Adam", 16, 4_000_000, steps=205),))
    found = tried(make, timeline)
    bounds = [each.bound for each in found]
    assert bounds == sorted(bounds, reverse=True)
    assert found[0].bound > 0.5
    knobs = {each.knob for each in found}
    assert {"cache-dataset", "num-workers", "batched-fetch", "compile", "batch-size"} <= knobs
    assert "fused-optimizer" not in knobs  # the optimizer takes 2 % of a step


def test_a_job_that_waits_for_nothing_is_tried_on_its_computation(make):
    found = tried(make, make.timeline(40.0), cpu_bf16=True)
    assert {each.knob for each in found} == {"compile", "compute-threads", "precision"}


def test_a_suspected_cause_is_enough(make):
    timeline = make.timeline(40.0, runtime=Runtime(2, debug=("deterministic",)))
    assert "debug-mode-off" in {each.knob for each in tried(make, timeline)}


def test_what_a_knob_brings_is_switched_together_with_it(make):
    found = {each.knob: each for each in tried(make, make.fed(40.0, 0.6))}
    bringing = [knob for knob in KNOBS if knob.brings and knob.id in found]
    assert bringing
    assert all(found[knob.id].beside.items() <= knob.brings.items() for knob in bringing)
    assert any(found[knob.id].beside for knob in bringing)


def test_cadences_are_for_a_trainer_that_has_the_option(make):
    def knobs(framework):
        timeline = make.timeline(
            40.0,
            columns={Stage.LOG: [20.0] * 200},
            cadences=(make.cadence(Stage.LOG, 200, 1.0),),
            runtime=Runtime(2, framework=framework),
        )
        return {each.knob for each in tried(make, timeline)}

    assert "log-every" in knobs("lightning")
    assert "log-every" not in knobs("plain")


def test_nothing_steady_gives_nothing_to_try(make):
    timeline = make.timeline()
    assert candidates_for([], make.host(), KNOBS) == []
    assert tried(make, replace(timeline, steady_from=len(timeline.steps))) == []
