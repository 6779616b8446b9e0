"""What the integrations share: points by name, subclasses that hide them, and a word before a method."""

from types import SimpleNamespace

import pytest

from hotlap.facts.timeline import Stage
from hotlap.integrations import Overrides, before, stage_points


class Notebook:
    def __init__(self):
        self.staged = []

    def stage(self, owner, name, stage, *, lasting=True):
        self.staged.append((owner, name, stage))


class Strategy:
    def step(self):
        return "framework"


class Mixin:
    def step(self):
        return "mixin"


class Custom(Mixin, Strategy):
    def log(self):
        return "custom"


@pytest.fixture
def notebook():
    return Notebook()


def test_a_point_names_a_method_or_a_function_of_the_module(notebook):
    module = SimpleNamespace(Strategy=Strategy, move=lambda batch: batch)
    stage_points(notebook, module, {"Strategy.step": Stage.FORWARD, "move": Stage.TRANSFER})
    assert notebook.staged == [(Strategy, "step", Stage.FORWARD), (module, "move", Stage.TRANSFER)]


def test_a_class_that_a_version_lacks_is_passed_over(notebook):
    stage_points(notebook, SimpleNamespace(), {"Gone.step": Stage.FORWARD})
    assert notebook.staged == []


def test_overrides_stage_what_hides_the_framework_and_not_the_framework(notebook):
    Overrides({"step": Stage.FORWARD, "log": Stage.LOG}).stage(notebook, Custom, "Strategy")
    assert notebook.staged == [(Custom, "log", Stage.LOG), (Mixin, "step", Stage.FORWARD)]


def test_overrides_stage_a_class_once(notebook):
    overrides = Overrides({"log": Stage.LOG})
    overrides.stage(notebook, Custom, "Strategy")
    overrides.stage(notebook, Custom, "Strategy")
    assert len(notebook.staged) == 1


def test_a_class_of_another_family_is_left_alone(notebook):
    Overrides({"step": Stage.FORWARD}).stage(notebook, Mixin, "Strategy")
    assert notebook.staged == []


def test_before_keeps_the_method_and_its_name():
    told = []
    method = before(told.append)(Strategy.step)
    strategy = Strategy()
    assert method(strategy) == "framework"
    assert told == [strategy]
    assert method.__name__ == "step"
