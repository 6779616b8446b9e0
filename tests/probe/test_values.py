"""What the sampler notes of a frame's values, and that the script cannot tell."""

import gc
import sys
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hotlap.probe.values import described, values_of


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2, 3))
        self.scale = 2.0

    @property
    def explodes(self):
        raise AssertionError("code of the script was run")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.ones(3, 2), "torch.Tensor float32 3x2 cpu"),
        (torch.ones((), requires_grad=True), "torch.Tensor float32 scalar cpu grad"),
        (np.zeros(4, dtype=np.int16), "numpy.ndarray int16 4"),
        ([torch.ones(2)], "list 1 torch.Tensor float32 2 cpu"),
        ((), "tuple 0"),
        ({"a": 1}, "dict 1 int"),
        (1.5, "float"),
        (None, "NoneType"),
    ],
)
def test_a_value_in_words(value, words):
    assert described(value) == words


def test_names_attributes_and_entries_of_a_frame():
    def f(self, batch):
        x = self.weight + self.scale
        y = self.explodes if x is None else None
        return values_of(sys._getframe_of_test()), y

    sys._getframe_of_test = lambda: sys._getframe(1)
    try:
        found, _ = f(Net(), {"audio": torch.ones(2), 3: 4})
    finally:
        del sys._getframe_of_test
    assert found["self.weight"] == "torch.Tensor float32 2x3 cpu grad"
    assert found["self.scale"] == "float"
    assert found["batch['audio']"] == "torch.Tensor float32 2 cpu"
    assert found["x"].startswith("torch.Tensor float32 2x3")
    assert "self.explodes" not in found
    assert found["self"].endswith("torch.nn.modules.module.Module")


def test_a_variable_of_the_enclosing_function_hides_a_global_one():
    """A global one that is called as an attribute of it is too."""
    namespace = {"x": torch.ones(2, 3), "look": lambda: values_of(sys._getframe(1))}
    exec("def f(self):\n    x = self.x\n    return [look() for _ in range(1)][0]", namespace)
    assert namespace["f"](SimpleNamespace(x=torch.ones(4)))["x"] == "torch.Tensor float32 4 cpu"


def look_from_aside(ready, go, found):
    """As the sampler does: from another thread, at the frame that `hold` waits in."""
    ready.wait(10)
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame.f_code.co_name not in ("hold", "hold_with_locals"):
        frame = frame.f_back
    found.append(values_of(frame))
    go.set()


class Large:
    pass


def looked_at(function):
    ready, go, found = threading.Event(), threading.Event(), []
    thread = threading.Thread(target=look_from_aside, args=(ready, go, found))
    thread.start()
    try:
        return function(ready, go), found[0]
    finally:
        thread.join()


def test_nothing_is_kept_alive_and_no_variable_is_lost():
    def hold(ready, go):
        large = Large()
        gone = weakref.ref(large)
        ready.set()
        go.wait(10)
        same = large is gone()
        del large
        gc.collect()
        return same, gone() is None

    (same, freed), found = looked_at(hold)
    assert same and freed
    assert found["large"].endswith(".Large")


def test_a_function_that_asks_for_its_variables_is_left_alone():
    def hold_with_locals(ready, go):
        value = 3
        mine = locals()
        ready.set()
        go.wait(10)
        return mine["value"], value

    (kept, value), found = looked_at(hold_with_locals)
    assert (kept, value) == (3, 3)
    assert "value" not in found
