"""Objects that stay are not walked over again, and are again when it is undone."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from torch import nn

from hotlap.facts.timeline import Pauses
from hotlap.knobs import gc_freeze
from hotlap.knobs.gc_freeze import GcFreeze


@pytest.fixture(autouse=True)
def usual():
    """The collector as Python starts it, before and after."""
    thresholds = gc.get_threshold()
    yield
    assert gc.get_threshold() == thresholds and gc.isenabled()
    assert not gc.get_freeze_count()


class Node:
    """Refers to itself: only a collection frees it."""

    def __init__(self):
        self.itself = self


def test_bit_equal(fit_compute, train):
    plain = train()
    fitter = fit_compute(gc_freeze=True)
    assert train().same_as(plain)
    fitter.undo()


def test_what_is_there_is_set_apart_until_it_is_undone(fit_compute):
    catalogue = [[number] for number in range(1000)]
    thresholds = gc.get_threshold()
    fitter = fit_compute(gc_freeze=True)
    assert gc.get_freeze_count() > len(catalogue)
    assert not any(each is catalogue for each in gc.get_objects())
    assert gc.get_threshold() == (10_000, *thresholds[1:])
    fitter.undo()
    assert any(each is catalogue for each in gc.get_objects())


def test_what_comes_before_the_first_steps_are_over_is_set_apart_too(fit_compute, train):
    fitter = fit_compute(gc_freeze=True)
    built = []

    def network():
        built.append([[number] for number in range(1000)])
        return nn.Linear(8, 4)

    train(network, steps=4)
    assert any(each is built[0] for each in gc.get_objects())
    train(network, steps=2)
    assert not any(each is built[0] for each in gc.get_objects())
    fitter.undo()


def test_new_garbage_is_still_collected(fit_compute):
    fitter = fit_compute(gc_freeze=True)
    gone = weakref.ref(Node())
    gc.collect()
    assert gone() is None
    fitter.undo()


def test_what_was_set_apart_and_became_garbage_is_collected_now_and_then(fit_compute, train, monkeypatch):
    monkeypatch.setattr(gc_freeze, "_EVERY_STEPS", 8)
    monkeypatch.setattr(gc_freeze, "_EVERY_S", 0.0)
    node = Node()
    held = weakref.ref(node)
    fitter = fit_compute(gc_freeze=True)
    del node
    train(steps=6)
    assert held() is not None
    train(steps=2)
    assert held() is None
    fitter.undo()


def test_a_script_that_freezes_is_left_alone(fit_compute):
    gc.freeze()
    try:
        (record,) = fit_compute(gc_freeze=True).fitted
    finally:
        gc.unfreeze()
    assert record.reason == "the script has frozen its objects already"


def test_thresholds_that_the_script_sets_stay(fit_compute):
    thresholds = gc.get_threshold()
    fitter = fit_compute(gc_freeze=True)
    gc.set_threshold(5000, 5, 5)
    fitter.undo()
    assert gc.get_threshold() == (5000, 5, 5)
    gc.set_threshold(*thresholds)


def test_it_may_come_while_torch_goes_through_its_hooks(fit_compute):
    """As a search does: between two steps is in a hook after the first."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    undos = []
    hook = register_optimizer_step_post_hook(
        lambda *_: undos.pop()() if undos else undos.append(GcFreeze().apply(None, True))
    )
    other = register_optimizer_step_post_hook(lambda *_: None)
    net = nn.Linear(2, 2)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(4):
        net(torch.ones(1, 2)).sum().backward()
        sgd.step()
    hook.remove()
    other.remove()
    assert not undos


def test_where_it_is_worth_a_try(compute_host, compute_timeline):
    knob, host, timeline = GcFreeze(), compute_host(), compute_timeline()
    assert knob.settings(host, timeline) == () and knob.ceiling(timeline, host) == 0.0
    paused = replace(timeline, pauses=Pauses(count=10, seconds=0.25, longest_s=0.03))
    assert knob.settings(host, paused) == (True,)
    assert knob.ceiling(paused, host) == pytest.approx(0.25)
