"""Gradients accumulated over hundreds of batches are one step; a script that updates by hand makes a step each time."""

from __future__ import annotations

import pytest
import torch

from hotlap.probe import control, marks
from hotlap.probe import session as accumulation
from hotlap.probe.control import WindowDone
from hotlap.probe.epilogue import Epilogue
from hotlap.probe.marks import Kind
from hotlap.probe.session import Accumulation
from hotlap.probe.taps import autograd, optimizer

MICRO = 300  # more than the steady steps that a profile waits for


@pytest.fixture
def weight(session):
    epilogue = Epilogue(session)
    autograd.install(session, epilogue)
    optimizer.install(session, epilogue)
    return torch.nn.Parameter(torch.ones(4))


def backward(weight):
    weight.square().sum().backward()


def by_hand(weight):
    with torch.no_grad():
        weight -= 0.1 * weight.grad
        weight.grad.zero_()


def test_a_script_that_updates_by_hand_is_described_like_others(session, weight):
    steps = []
    session.step_ends.append(lambda: not steps.append(session.control.without_optimizer))
    for _ in range(64 + 5):
        backward(weight)
        by_hand(weight)
    assert steps == [1, 2, 3, 4, 5], "until then it may be a long accumulation"
    assert session.facts["runtime"]["threads"] == torch.get_num_threads()


def test_a_long_accumulation_before_its_first_step_is_none_of_them(session, weight):
    sgd = torch.optim.SGD([weight], lr=0.1)
    for _ in range(64 + 5):
        backward(weight)
    sgd.step()
    assert session.control.without_optimizer == 0


def test_a_long_accumulation_is_not_cut_off_before_its_first_step(session, weight):
    sgd = torch.optim.SGD([weight], lr=0.1)
    control.stop_after(session.folder, 2)
    with pytest.raises(WindowDone):
        for _ in range(5):
            for _ in range(MICRO):
                backward(weight)
            sgd.step()
            sgd.zero_grad()
    assert session.control.steps == 2


def test_each_pass_but_the_first_is_marked_as_going_on(session, weight):
    held = torch.optim.SGD([weight], lr=0.1)
    for _ in range(10):
        backward(weight)
    codes = [mark & 255 for mark in session.ring.buffer]
    assert codes.count(marks.leave(Kind.BACKWARD)) == 10
    assert codes.count(marks.CONTINUES) == 9
    assert codes.index(marks.CONTINUES) > codes.index(marks.leave(Kind.BACKWARD))
    held.step()
    backward(weight)
    assert [mark & 255 for mark in session.ring.buffer].count(marks.CONTINUES) == 9, "no one asks any more"


def test_an_optimizer_that_is_never_used_does_not_keep_a_loop_from_ending(session, weight):
    unused = torch.optim.SGD([weight], lr=0.1)
    control.stop_after(session.folder, 100)
    made = []
    with pytest.raises(WindowDone):
        while len(made) < 500:
            made.append(backward(weight))
            by_hand(weight)
    assert len(made) == 99, "the hundredth is the last"
    assert unused.param_groups


def test_nor_does_one_whose_parameters_are_written_where_torch_does_not_count(weight, monkeypatch):
    monkeypatch.setattr(accumulation, "_MOST", 50)
    waits, unused = Accumulation(), torch.optim.SGD([weight], lr=0.1)
    waits.built(unused)
    told = []
    for _ in range(60):
        told.append(waits.goes_on())
        weight.data -= 0.1
    assert told == [False] + [True] * 49 + [False] * 10


def test_without_an_optimizer_nothing_waits():
    assert [Accumulation().goes_on() for _ in range(3)] == [False] * 3


def test_an_optimizer_that_has_gone_is_not_waited_for():
    waits, sgd = Accumulation(), torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    waits.built(sgd)
    assert [waits.goes_on(), waits.goes_on()] == [False, True]
    del sgd
    assert [waits.goes_on(), waits.goes_on()] == [False, False]


def test_frozen_parameters_are_passed_over():
    frozen, trained = (
        torch.nn.Parameter(torch.ones(2), requires_grad=False),
        torch.nn.Parameter(torch.ones(2)),
    )
    waits, sgd = Accumulation(), torch.optim.SGD([frozen, trained], lr=0.1)
    waits.built(sgd)
    told = []
    for _ in range(3):
        told.append(waits.goes_on())
        with torch.no_grad():
            trained += 1
    assert told == [False] * 3


def test_two_optimizers_wait_only_while_neither_writes():
    one, two = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    waits = Accumulation()
    both = [torch.optim.SGD([parameter], lr=0.1) for parameter in (one, two)]
    for each in both:
        waits.built(each)
    assert [waits.goes_on(), waits.goes_on()] == [False, True]
    with torch.no_grad():
        two += 1
    assert not waits.goes_on()
