"""What items can depend on is seen to change, and what they do not depend on is not."""

from __future__ import annotations

import collections
import functools
import io
import multiprocessing
import os
import random
import sys
import types
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset

from hotlap.sameness.dependencies import Dependencies
from hotlap.sameness.parts import ReadValue

SCALE = 1.0
TABLE = {"gain": [1.0, 2.0]}


class Config:
    def __init__(self) -> None:
        self.noise = 0.5


class Slotted:
    __slots__ = ("level",)

    def __init__(self) -> None:
        self.level = 1

    def __call__(self, value: Any) -> Any:
        return value * self.level


def helper(value: Any) -> Any:
    return value * SCALE * TABLE["gain"][0]


class Items(Dataset[Any]):
    shared = 3

    def __init__(self) -> None:
        self.rows = [1, 2, 3]
        self.names = {"a": 1}
        self.array = np.arange(200_000, dtype=np.float64)
        self.tensor = torch.arange(100.0)
        self.nested = {"deep": [torch.zeros(4)]}
        self.config = Config()
        self.slotted = Slotted()
        self.queue = collections.deque([1])
        self.generator = np.random.default_rng(0)
        self.python = random.Random(1)
        self.level = multiprocessing.Value("i", 0)
        self.partial = functools.partial(helper, value=[1])
        self.unused = 0
        self.matrix = np.asfortranarray(np.ones((30, 40)))[:, ::2]

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        factor = float(os.environ.get("ITEMS_FACTOR", "1"))
        picked = self.array[index] + self.tensor[index] + self.rows[index] + self.names["a"]
        moved = self.nested["deep"][0][0] + self.config.noise + self.queue[0] + self.level.value
        other = self.generator, self.python, self.partial, self.matrix
        return helper(self.slotted(picked + moved)) * factor * self.shared, other


def set_global(name: str, value: Any) -> None:
    globals()[name] = value


CHANGES: dict[str, Any] = {
    "list": lambda items: items.rows.__setitem__(1, 9),
    "dict": lambda items: items.names.__setitem__("a", 2),
    "array": lambda items: items.array.__setitem__(150_000, -1.0),
    "strided": lambda items: items.matrix.__setitem__((3, 3), -1.0),
    "tensor": lambda items: items.tensor.add_(1),
    "tensor data": lambda items: items.tensor.data.__setitem__(5, 7.0),
    "tensor through numpy": lambda items: items.tensor.numpy().__setitem__(5, 7.0),
    "nested tensor": lambda items: items.nested["deep"][0].data.fill_(2),
    "config": lambda items: setattr(items.config, "noise", 0.25),
    "slot": lambda items: setattr(items.slotted, "level", 2),
    "deque": lambda items: items.queue.append(2),
    "numpy generator": lambda items: items.generator.random(),
    "python generator": lambda items: items.python.random(),
    "shared number": lambda items: setattr(items.level, "value", 4),
    "argument of a partial": lambda items: items.partial.keywords["value"].append(2),
    "global": lambda _: set_global("SCALE", 2.0),
    "inside of a global": lambda _: TABLE["gain"].__setitem__(0, 5.0),
    "class attribute": lambda _: setattr(Items, "shared", 4),
    "method": lambda _: setattr(Slotted, "__call__", lambda self, value: value),
    "environment": lambda _: os.environ.__setitem__("ITEMS_FACTOR", "2"),
    "class of the dataset": lambda items: setattr(items, "__class__", type("Other", (Items,), {})),
    "rebound": lambda items: setattr(items, "rows", [1, 2, 3, 4]),
}


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Any:
    call, shared = Slotted.__call__, Items.shared
    monkeypatch.delenv("ITEMS_FACTOR", raising=False)
    yield
    Slotted.__call__, Items.shared = call, shared
    os.environ.pop("ITEMS_FACTOR", None)
    set_global("SCALE", 1.0)
    TABLE["gain"][0] = 1.0


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(change: str) -> None:
    items = Items()
    watched = Dependencies(items)
    assert watched.changed() == ""
    assert watched.compared == watched.size
    CHANGES[change](items)
    assert watched.changed() != ""


def test_what_no_item_uses_is_no_change() -> None:
    items = Items()
    watched = Dependencies(items)
    items.unused = 5
    items.brand_new = 3  # type: ignore[attr-defined]
    assert watched.changed() == ""


def test_a_global_with_the_name_of_an_attribute_is_no_change() -> None:
    items = Items()
    watched = Dependencies(items)
    set_global("rows", object())
    try:
        assert watched.changed() == ""
    finally:
        del globals()["rows"]


def test_the_same_number_in_another_object_is_no_change() -> None:
    items = Items()
    items.rows[0] = 10**6
    watched = Dependencies(items)
    items.rows[0] = int("1000000")
    items.config.noise = float("0.5")
    assert watched.changed() == ""


def test_parts_are_compared_in_rotation_and_all_in_the_end() -> None:
    items = Items()
    items.array = np.zeros(1_000_000)
    watched = Dependencies(items)
    items.array[-1] = 1.0
    found = [watched.changed(within_s=0.0) for _ in range(20)]
    assert any("array" in each for each in found)
    assert found[0] == ""


def test_a_subset_and_the_tensors_below_it_are_watched() -> None:
    tensors = TensorDataset(torch.zeros(10))
    part = Subset(tensors, [1, 2, 3])
    watched = Dependencies(part)
    part.indices[0] = 5  # type: ignore[index]
    assert "indices" in watched.changed()
    watched = Dependencies(part)
    tensors.tensors[0].data[3] = 1.0
    assert watched.changed()


def test_a_module_of_the_user_s_own_is_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("settings_of_mine")
    module.__file__ = "/somewhere/settings_of_mine.py"
    module.gain = 1
    monkeypatch.setitem(sys.modules, "settings_of_mine", module)
    space: dict[str, Any] = {"settings_of_mine": module, "__name__": "__main__"}
    exec("def collate(items):\n    return [each * settings_of_mine.gain for each in items]", space)
    watched = Dependencies(space["collate"])
    module.other = 1
    assert watched.changed() == ""
    module.gain = 2
    assert watched.changed() == "settings_of_mine.gain"


def test_a_closure_and_a_default_are_watched() -> None:
    level, kept = 1, [1]

    def collate(items: Any, extra: Any = kept) -> Any:
        return items, level, extra

    watched = Dependencies(collate)
    kept.append(2)
    assert watched.changed()
    watched = Dependencies(collate)
    level = 2
    assert watched.changed()


def test_what_cannot_be_walked_is_named() -> None:
    class Clocked(Items):
        def __getitem__(self, index: int) -> Any:
            return time.time()

    import time

    globals()["time"] = time
    try:
        assert any("clock" in each for each in Dependencies(Clocked()).unknown)
    finally:
        del globals()["time"]
    assert not Dependencies(Items()).unknown


def test_a_file_that_is_rewritten_is_seen_also_with_its_old_time(tmp_path: Any) -> None:
    path = tmp_path / "rows.bin"
    path.write_bytes(b"one")
    watched = Dependencies(files=[str(path)])
    assert watched.changed() == ""
    before = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert str(path) in watched.changed()


def test_what_fetching_changes_is_named_and_can_be_left_out() -> None:
    class Counting(Items):
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.memo = 0, {}

        def __getitem__(self, index: int) -> Any:
            self.calls += 1
            self.memo[index] = index
            return super().__getitem__(index)

    items = Counting()
    watched = Dependencies(items)
    items[1]
    volatile = watched.all_changed()
    assert {each.rpartition(".")[2] for each in volatile} == {"calls", "memo"}
    watched = Dependencies(items, volatile=volatile)
    items[2]
    assert watched.changed() == ""
    assert len(watched.unknown) == 2
    items.config.noise = 9.0
    assert watched.changed()


def test_memory_that_an_item_shares_is_found() -> None:
    items = Items()
    watched = Dependencies(items)
    row = items.array[10:20]
    assert watched.shares_memory(*np.lib.array_utils.byte_bounds(row))
    assert not watched.shares_memory(*np.lib.array_utils.byte_bounds(row.copy()))


def test_what_can_no_longer_be_read_has_changed() -> None:
    held = [io.BytesIO(b"rows")]
    part = ReadValue("the file", lambda: held[0].getvalue())
    assert part.changed() == ""
    held[0].close()
    assert part.changed() == "the file"
