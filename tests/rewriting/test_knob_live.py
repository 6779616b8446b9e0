"""Functions of a running process are switched to their rewritten form and back."""

import importlib.util
import inspect
import sys
import threading
from pathlib import Path

import pytest

from hotlap.facts.rewrite import Rewriting
from hotlap.ports.knob import CannotActError
from hotlap.rewriting import knob
from hotlap.rewriting.hook import spotted
from hotlap.source.files import SourceFile

CODE = """
def total(samples):
    return sum(samples)  # of a tensor


class Items:
    def __getitem__(self, index):
        picked = [self.data[index], self.data[0]]
        return sum(picked[0])


def made():
    def inner(samples):
        return sum(samples)

    yield inner
    yield inner


def runs(samples, act):
    act()
    return sum(samples)
"""
TENSOR = "torch.Tensor float32 ? cpu"


class Counting:
    """Stands for a tensor: says which way it was summed."""

    def __iter__(self):
        raise AssertionError("summed one by one")

    def sum(self):
        return "at once"


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "items.py"
    path.write_text(CODE)
    spec = importlib.util.spec_from_file_location("items_of_live_test", path)
    found = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    yield found
    del sys.modules[spec.name]


def rewriting(module, name, seen):
    source = SourceFile.read(Path(module.__file__))
    function = next(each for each in source.functions if each.qualname == name)
    (site,) = spotted(function, seen)
    return Rewriting(
        "sum-over-tensor", module.__file__, 3, name, (site.at,), source.hash_of(function), "rounding", seen
    )


def test_a_function_is_switched_and_switched_back(module):
    before = module.total.__code__
    undo = knob.switch(rewriting(module, "total", {"samples": TENSOR}), "/")
    assert module.total(Counting()) == "at once"
    assert module.total.__code__.co_firstlineno == before.co_firstlineno
    assert "sum(samples)  # of a tensor" in inspect.getsource(module.total)
    undo()
    assert module.total.__code__ is before
    assert module.total([1, 2]) == 3


def test_a_method_and_a_function_within_another_are_switched(module):
    items = module.Items()
    items.data = [Counting()]
    undo = knob.switch(rewriting(module, "Items.__getitem__", {"picked": f"list ? {TENSOR}"}), "/")
    assert items[0] == "at once"
    undo()
    within = module.made()
    inner = next(within)
    knob.switch(rewriting(module, "made.<locals>.inner", {"samples": TENSOR}), "/")
    assert inner(Counting()) == "at once"


def test_a_function_that_runs_is_refused(module):
    wanted = rewriting(module, "runs", {"samples": TENSOR})

    def act():
        with pytest.raises(CannotActError, match="is running"):
            knob.switch(wanted, "/")

    assert module.runs([1, 2], act) == 3
    done = threading.Event()
    thread = threading.Thread(target=module.runs, args=([1], done.wait))
    thread.start()
    with pytest.raises(CannotActError, match="is running"):
        knob.switch(wanted, "/")
    done.set()
    thread.join()
    assert knob.switch(wanted, "/")


def test_source_that_has_changed_is_refused(module):
    wanted = rewriting(module, "total", {"samples": TENSOR})
    with Path(module.__file__).open("a") as file:  # elsewhere in the file
        file.write("\n\ndef other():\n    return 1\n")
    assert knob.switch(wanted, "/")
    text = CODE.replace("return sum(samples)  # of a tensor", "return sum(samples) + 1")
    Path(module.__file__).write_text(text)
    with pytest.raises(CannotActError, match=r"the source of total in .* has changed since"):
        knob.switch(wanted, "/")
