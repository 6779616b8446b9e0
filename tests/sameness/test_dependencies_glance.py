"""What a script sets between two batches is seen before the next one, and nothing else is taken for it."""

from __future__ import annotations

import collections
import multiprocessing
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from hotlap.sameness.dependencies import MOST, Dependencies

LEVEL = 1.5


def scaled(value: Any) -> Any:
    return value * LEVEL


def closing(by: Any) -> Callable[[Any], Any]:
    def scale(value: Any) -> Any:
        return value * by

    return scale


class Slotted:
    __slots__ = ("level",)

    def __init__(self) -> None:
        self.level = 1


class Items(Dataset[Any]):
    factor = 3.0

    def __init__(self) -> None:
        self.zero, self.one, self.text = 0.0, 1, "a"
        self.rows, self.table = [1, 2.0], {"a": 1.0}
        self.queue, self.words = collections.deque([1]), {"a"}
        self.tensor = torch.zeros(100)
        self.few = torch.zeros(2)
        self.shared = multiprocessing.Value("i", 0)
        self.scale: Any = closing([2.0])
        self.slotted = Slotted()

    def __getitem__(self, index: int) -> Any:
        held = (self.zero, self.one, self.text, self.rows, self.table, self.queue, self.words, self.few)
        return (
            held,
            self.slotted.level,
            self.shared.value,
            scaled(self.scale(self.tensor[index])) * self.factor,
        )


def _set(name: str, value: Any) -> Callable[[Any], None]:
    return lambda items: setattr(items, name, value)


AT_ONCE: dict[str, Callable[[Any], Any]] = {
    "another number": _set("one", 2),
    "a number of another kind": _set("one", True),
    "the other zero": _set("zero", -0.0),
    "another function": _set("scale", scaled),
    "an attribute that goes": lambda items: delattr(items, "text"),
    "an entry of a list": lambda items: items.rows.__setitem__(0, 5),
    "an entry of another kind": lambda items: items.rows.__setitem__(0, 1.0),
    "an entry more": lambda items: items.rows.append(1),
    "a value of a dict": lambda items: items.table.__setitem__("a", 2.0),
    "a key of a dict": lambda items: items.table.__setitem__("b", items.table.pop("a")),
    "an entry of a deque": lambda items: items.queue.__setitem__(0, 2),
    "an entry of a set": lambda items: (items.words.clear(), items.words.add("b")),
    "a tensor in place": lambda items: items.tensor.add_(1.0),
    "the data of a tensor": lambda items: setattr(items.tensor, "data", torch.ones(100)),
    "some bytes of a tensor": lambda items: items.few.data.fill_(1.0),
    "a number that processes share": lambda items: setattr(items.shared, "value", 1),
    "a slot": lambda items: setattr(items.slotted, "level", 2),
    "a member of the class": lambda items: setattr(Items, "factor", 4.0),
    "a global": lambda items: globals().__setitem__("LEVEL", 2.5),
    "what a closure holds": lambda items: setattr(items.scale.__closure__[0], "cell_contents", 5.0),
}


@pytest.fixture
def items(monkeypatch: pytest.MonkeyPatch) -> Items:
    monkeypatch.setattr(Items, "factor", Items.factor)
    monkeypatch.setitem(globals(), "LEVEL", LEVEL)
    return Items()


@pytest.mark.parametrize("name", AT_ONCE)
def test_data_are_compared_for_each_batch(items: Items, name: str) -> None:
    watched = Dependencies(items)
    assert not watched.quickly_changed()
    AT_ONCE[name](items)
    assert watched.quickly_changed()
    assert watched.quickly_changed()  # and it stays so


def test_the_same_value_in_another_object_is_no_change_however_often(items: Items) -> None:
    watched = Dependencies(items)
    for number in range(50):
        items.zero, items.rows[1], items.table["a"] = float("0"), float("2"), float("1")
        assert not watched.quickly_changed(), number
    items.rows[1] = 3.0
    assert watched.quickly_changed()


def test_an_attribute_that_no_item_uses_is_no_change(items: Items) -> None:
    watched = Dependencies(items)
    for number in range(20):
        setattr(items, f"own{number}", number)
        assert not watched.quickly_changed()
    items.one = 2
    assert watched.quickly_changed()


def test_code_is_compared_at_every_look_and_not_taken_for_a_change_of_just_now(
    items: Items, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is seen for each batch has made no batch wrong; a function that was replaced before may have."""
    items.rows = [[number] for number in range(5000)]
    watched = Dependencies(items)
    monkeypatch.setitem(globals(), "scaled", closing(7.0))
    monkeypatch.setattr(Items, "__len__", lambda _: 5, raising=False)
    assert not watched.quickly_changed()
    items.one = 2
    assert watched.quickly_changed() == "Items.one"
    items.one = 1
    assert watched.changed(within_s=1e-9) == "scaled"


def test_much_to_compare_does_not_make_a_batch_slow(items: Items) -> None:
    items.rows = [{"a": number} for number in range(500)]
    watched = Dependencies(items)
    assert sum(part.weigh() for part in watched._glance.parts) <= MOST
    items.rows[400]["a"] = -1
    assert watched.changed()
