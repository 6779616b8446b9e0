from __future__ import annotations

from dataclasses import replace

import pytest

from hotlap.diagnose.inputs import collate_line, data_line, input_of, item_line, top_line
from hotlap.facts.timeline import HotLine, Runtime, SourceLine, Stage


def test_without_workers_the_wait_is_what_loading_does(make):
    seen = input_of(make.sight(make.fed(40.0, 0.6, cpu=0.5, collate=0.2)))
    assert seen.data == pytest.approx(0.6)
    assert seen.cpu == pytest.approx(0.24, rel=0.02)
    assert seen.wait == pytest.approx(0.24, rel=0.02)
    assert seen.collate == pytest.approx(0.12, rel=0.02)
    assert seen.rest == pytest.approx(0.0, abs=0.02)
    assert seen.item_ms == pytest.approx(40 * 0.6 * 0.8 / 64, rel=0.01)


def test_what_loading_does_not_explain_is_the_rest(make):
    timeline = make.timeline(40.0, {Stage.DATA: 0.6}, loaders=(make.loader(),), workers=(make.work(6.0),))
    seen = input_of(make.sight(timeline))
    assert seen.cpu == pytest.approx(0.15, rel=0.02)
    assert seen.rest == pytest.approx(0.45, rel=0.02)


def test_with_workers_the_wait_is_split_as_their_time_was(make):
    loader = make.loader(num_workers=2, prefetch_factor=2)
    rows = tuple(make.work(40.0, cpu=0.25, idle=0.2, number=each) for each in range(2))
    timeline = make.timeline(40.0, {Stage.DATA: 0.5}, loaders=(loader,), workers=rows)
    seen = input_of(make.sight(timeline))
    assert seen.busy == pytest.approx(0.8)
    assert seen.cpu == pytest.approx(0.5 * 0.8 * 0.25)
    assert seen.wait == pytest.approx(0.5 * 0.8 * 0.75)


def test_on_a_busy_machine_computing_items_wait_for_a_core_and_sleeping_ones_do_not(make):
    busy = {"gauges": make.gauges(cpu=1.0, foreign_cpu=3.0)}
    computing = input_of(make.sight(make.fed(40.0, 0.6, cpu=0.5, **busy)))
    assert (computing.cpu, computing.wait) == (pytest.approx(0.6, rel=0.02), pytest.approx(0.0, abs=0.01))
    sleeping = input_of(make.sight(make.fed(40.0, 0.6, cpu=0.05, **busy)))
    assert sleeping.wait == pytest.approx(0.48, rel=0.02)
    assert computing.item_ms == sleeping.item_ms


def test_workers_that_rest_during_validation_are_not_idle(make):
    loader = make.loader(num_workers=2, prefetch_factor=2)
    rows = tuple(make.work(40.0, idle=0.5, number=each) for each in range(2))
    timeline = make.timeline(40.0, {Stage.DATA: 0.2, Stage.VALIDATE: 0.5}, loaders=(loader,), workers=rows)
    assert input_of(make.sight(timeline)).busy == pytest.approx(1.0, rel=0.01)


def test_validation_loaders_do_not_feed_training(make):
    loaders = (make.loader(training=False, batches=900, num_workers=7), make.loader(num_workers=0))
    row = make.work(20.0)
    timeline = make.timeline(40.0, {Stage.DATA: 0.5}, loaders=loaders, workers=(row,))
    assert input_of(make.sight(timeline)) is None


@pytest.mark.parametrize("changes", [{"loaders": ()}, {"workers": ()}])
def test_what_was_not_seen_is_not_guessed(make, changes):
    assert input_of(make.sight(make.timeline(40.0, {Stage.DATA: 0.5}, **changes))) is None


def test_a_validation_is_not_placed_inside_the_model(make):
    forward = make.line(Stage.VALIDATE, 0.9)
    forward = replace(forward, place=replace(forward.place, function="Net.forward"))
    own = make.line(Stage.VALIDATE, 0.1, file="train.py")
    assert top_line(make.timeline(lines=(forward, own)), Stage.VALIDATE) is own
    assert top_line(make.timeline(lines=(forward,)), Stage.VALIDATE) is None


def test_the_call_of_a_trainer_is_no_place(make):
    fit = make.line(Stage.DATA, 0.9)
    fit = replace(fit, place=replace(fit.place, code="trainer.fit(model, loader)"))
    own = make.line(Stage.DATA, 0.1, file="data.py")
    under = make.timeline(lines=(fit, own), runtime=Runtime(1, framework="lightning"))
    assert top_line(under, Stage.DATA) is own
    assert top_line(make.timeline(lines=(fit, own)), Stage.DATA) is fit


def test_lines_are_looked_for_where_items_are_made(make):
    main, worker = make.line(share=0.9), make.line(share=0.4, role="worker")
    timeline = make.timeline(lines=(main, worker, make.line(Stage.OTHER, 0.99)))
    assert data_line(timeline, 0) is main
    assert data_line(timeline, 2) is worker
    assert item_line(timeline, make.loader()) is main
    assert item_line(timeline, make.loader(num_workers=2)) is worker
    assert top_line(timeline, Stage.LOG) is None


@pytest.mark.parametrize("function", ["pad", "pad.<locals>.<listcomp>", "Pad.__call__"])
def test_a_line_of_the_collate_function_is_not_one_of_items(make, function):
    collates, item, helper = make.line(share=0.6), make.line(share=0.25), make.line(share=0.05)
    collates = replace(collates, place=replace(collates.place, function=function))
    item = replace(item, place=replace(item.place, function="Windows.__getitem__"))
    timeline = make.timeline(lines=(collates, item, helper))
    loader = make.loader(collate=function.partition(".")[0])
    assert item_line(timeline, loader) is item
    assert collate_line(timeline, loader, mostly=False) is collates
    library = make.loader(collate="default_collate")  # whose lines are not the user's
    assert collate_line(timeline, library, mostly=False) is None
    assert collate_line(make.timeline(lines=(item, helper)), library, mostly=True) is helper


def test_a_call_of_a_trainer_over_several_lines_is_no_place_either(make):
    """The line that the sampler meets is one of its arguments."""
    trained = HotLine(
        SourceLine("train.py", 17, "<module>", "optimizer=make(),"), "Runner.train", Stage.DATA, 0.8, 80
    )
    own = replace(
        trained, place=SourceLine("data.py", 9, "Items.__getitem__"), callee="", share=0.2, samples=20
    )
    module = replace(own, callee="Module.train")
    runtime = Runtime(2, framework="mmengine")
    for line in (own, module):
        assert top_line(make.timeline(lines=(trained, line), runtime=runtime), Stage.DATA) is line
    assert top_line(make.timeline(lines=(trained, own)), Stage.DATA) is trained  # a script's own Runner


def test_items_are_not_placed_at_the_loop_that_takes_batches(make):
    taken = HotLine(SourceLine("train.py", 14), "_BaseDataLoaderIter.__next__", Stage.DATA, 0.8, 80)
    item = HotLine(SourceLine("data.py", 9, "Items.__getitem__"), "", Stage.DATA, 0.2, 20)
    assert item_line(make.timeline(lines=(taken, item)), make.loader()) is item
    seldom = replace(item, samples=3)
    assert item_line(make.timeline(lines=(taken, seldom)), make.loader()) is None
    assert top_line(make.timeline(lines=(taken,)), Stage.DATA) is None
    sharded = replace(taken, callee="DataLoaderShard.__iter__", stage=Stage.VALIDATE)
    assert top_line(make.timeline(lines=(sharded,)), Stage.VALIDATE) is sharded  # a loop that validates
