"""How long a training will be, from the trainer that stands on the stack."""

from __future__ import annotations

import math
import sys
from types import ModuleType, SimpleNamespace

import pytest

from hotlap.watch.beside import framework_total


def trainer(module, name="Trainer", **values):
    """An object of a class as a framework has it, whose `fit` makes a step somewhere below."""

    def fit(self, below):
        return below()

    kind = type(name, (), {"__module__": module, "fit": fit})
    made = kind()
    vars(made).update(values)
    return made


def below():
    return framework_total(sys._getframe())


@pytest.mark.parametrize(
    ("made", "total"),
    [
        (trainer("lightning.pytorch.trainer.trainer", estimated_stepping_batches=500), 500),
        (trainer("pytorch_lightning.trainer.trainer", estimated_stepping_batches=500.0), 500),
        (trainer("lightning.pytorch.trainer.trainer", estimated_stepping_batches=math.inf), None),
        (trainer("lightning.pytorch.trainer.trainer", estimated_stepping_batches=-1), None),
        (trainer("mmengine.runner.runner", "Runner", max_iters=80), 80),
        (trainer("my_project.train", estimated_stepping_batches=500, max_iters=9), None),
    ],
)
def test_what_a_trainer_means_to_do(made, total):
    assert made.fit(below) == total


def test_a_trainer_of_transformers_and_its_children(monkeypatch):
    class Trainer:
        def __init__(self):
            self.state = SimpleNamespace(max_steps=77)

        def train(self, below):
            return below()

    class Own(Trainer):
        pass

    module = ModuleType("transformers.trainer")
    module.Trainer = Trainer
    monkeypatch.setitem(sys.modules, "transformers.trainer", module)
    assert Own().train(below) == 77


def test_a_loop_of_ones_own_says_nothing():
    assert below() is None and framework_total(None) is None
