"""Optimizers are offered when their whole constructor has run, whatever class they are of."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from hotlap.ports.knob import Knob, Numerics
from hotlap.ports.target import Seam
from hotlap.ports.values import Flag
from hotlap.seams import optimizer
from hotlap.seams.fitter import Fitter


class Note(Knob):
    """Notes what an optimizer has when it is offered."""

    id = "note"
    seam = Seam.OPTIMIZER
    numerics = Numerics.BITWISE
    values = Flag()
    relieves = frozenset()

    def __init__(self):
        self.seen = []

    def settings(self, host, timeline):
        return ()

    def ceiling(self, timeline, host):
        return 0.0

    def apply(self, target, setting):
        self.seen.append((type(target.optimizer).__name__, getattr(target.optimizer, "late", None)))
        return lambda: None


class Early(torch.optim.SGD):
    """There before the seam; finishes its constructor after torch's."""

    def __init__(self, params, **kwargs):
        super().__init__(params, **kwargs)
        self.late = "done"


@pytest.fixture
def note():
    knob = Note()
    signature = inspect.signature(torch.optim.AdamW)
    constructors = torch.optim.AdamW.__init__, Early.__init__, torch.optim.Optimizer.__init__
    fitter = Fitter({"note": True}, {"note": knob})
    optimizer.install(fitter)
    assert inspect.signature(torch.optim.AdamW) == signature, "command lines are made from it"
    yield knob
    fitter.undo()
    assert (torch.optim.AdamW.__init__, Early.__init__, torch.optim.Optimizer.__init__) == constructors
    assert "__init_subclass__" not in vars(torch.optim.Optimizer)


def parameters():
    return nn.Linear(2, 2).parameters()


def test_each_is_offered_once_when_it_is_complete(note):
    torch.optim.AdamW(parameters())
    Early(parameters(), lr=0.1)
    assert note.seen == [("AdamW", None), ("Early", "done")]


def test_a_class_that_comes_later(note):
    kinds = []

    class Mixin:
        def __init_subclass__(cls, **kwargs):
            super().__init_subclass__(**kwargs)
            kinds.append(cls.__name__)

    class Late(torch.optim.Adam, Mixin):
        def __init__(self, params):
            super().__init__(params)
            self.late = "too"

    class Same(Late):
        pass

    Late(parameters())
    Same(parameters())
    assert note.seen == [("Late", "too"), ("Same", "too")]
    assert kinds == ["Late", "Same"], "its own parents are still asked"


def test_a_wrapper_around_an_optimizer_is_not_another_one(note):
    class Wrapper(torch.optim.Optimizer):
        """As Accelerate has it: no groups of its own."""

        def __init__(self, inner):
            self.inner = inner

        @property
        def param_groups(self):
            return self.inner.param_groups

    Wrapper(torch.optim.SGD(parameters(), lr=0.1))
    assert note.seen == [("SGD", None)]
