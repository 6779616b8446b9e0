"""An optimizer that calls `super().step()` makes one step, also where its parent class is stepped beside it."""

import pytest
import torch
from torch import nn

from hotlap.probe import marks
from hotlap.probe.epilogue import Epilogue
from hotlap.probe.marks import Kind
from hotlap.probe.taps import optimizer


class Careful(torch.optim.SGD):
    fails = False

    def step(self, closure=None):
        super().step(closure)
        if self.fails:
            raise RuntimeError("out of memory")


@pytest.fixture
def steps(session):
    """How many steps have begun and ended so far."""
    optimizer.install(session, Epilogue(session))

    def count():
        codes = [mark & 255 for mark in session.ring.buffer]
        return codes.count(marks.enter(Kind.STEP)), codes.count(marks.leave(Kind.STEP))

    return count


def made(kind):
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    return kind([weight], lr=0.1)


def test_a_step_inside_a_step_is_not_counted(steps):
    plain, careful = (
        made(torch.optim.SGD),
        made(Careful),
    )  # torch hooks the parent's step once it is built itself
    plain.step()
    careful.step()
    careful.step()
    assert steps() == (3, 3)


def test_a_step_that_raised_does_not_hide_the_next_ones(steps):
    made(torch.optim.SGD)
    careful = made(Careful)
    careful.fails = True
    with pytest.raises(RuntimeError):
        careful.step()
    careful.fails = False
    careful.step()
    assert steps() == (2, 1)
