"""Items come out of the cache as the dataset makes them, of whatever kind they are."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, StackDataset, Subset

from hotlap.data import materialise
from hotlap.data.cache.served import identical, kept_of

Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Scene:
    name: str
    boxes: list[float]


def every_kind(index: int) -> dict[str, Any]:
    """One leaf of each kind that has a column of its own."""
    draw = np.random.default_rng(index)
    picture = draw.integers(0, 255, (4, 5, 3), dtype=np.uint8)
    return {
        "float32": torch.from_numpy(draw.normal(size=(3, 2)).astype(np.float32)),
        "bfloat16": torch.full((2, 2), index / 3).bfloat16(),
        "complex": torch.tensor([index + 1j, 2j], dtype=torch.complex128),
        "bool": torch.tensor([index % 2 == 0, True]),
        "channels first": torch.from_numpy(picture).permute(2, 0, 1),
        "nothing": torch.empty(0, 3),
        "scalar": torch.tensor(index * 1.5),
        "picture": picture,
        "by columns": np.asfortranarray(draw.normal(size=(3, 4))),
        "big-endian": np.array([index, 2], dtype=">i4"),
        "numpy": {"float": np.float32(index / 7), "int": np.int16(index), "when": np.datetime64(index, "D")},
        "names": np.array(["ab", "cd"]),
        "plain": (index, index / 7, index % 3 == 0, None),
        "nan": float("nan"),
        "text": f"Nr. {index} " + "ü\ud800" * (index % 4),
        "bytes": bytes(range(index)),
        "pair": Pair(torch.tensor([index]), [1, torch.tensor(2.0)]),
    }


def varying(index: int) -> tuple[Any, ...]:
    """Values whose sizes differ from item to item, also to nothing."""
    size = index * 5 % 11
    clip = torch.arange(size, dtype=torch.float32)[None] * index
    tokens = [index * each for each in range(size + 1)]
    return (
        clip,
        np.arange(2 * size).reshape(size, 2),
        tokens,
        [0.5] * (index + 1),
        {"t": clip.T.contiguous().T},
    )


def objects(index: int) -> tuple[Any, ...]:
    """What has no column of its own is kept as it is."""
    parts = [torch.full((each,), float(index)) for each in range(index % 3)]
    return Scene(f"scene {index}", [index / 3.0] * (index % 2)), parts, 2**70 + index


def window(index: int) -> tuple[torch.Tensor, np.ndarray, int]:
    signal = np.sin(np.arange(400.0, dtype=np.float32)).reshape(200, 2)
    start = 3 * index + (20 if index > 20 else 0)  # two recordings with a gap between them
    return torch.from_numpy(signal[start : start + 24].copy()), signal[start : start + 16, 0], index


@pytest.mark.parametrize("keep", ["memory", "file"])
@pytest.mark.parametrize("make", [every_kind, varying])
def test_items_are_equal_in_every_respect(made, require_equal, make, keep):
    dataset = made(make)
    require_equal(dataset, materialise(dataset, keep))


def test_objects_are_kept_in_memory_and_in_no_file(made, words):
    dataset = made(objects)
    served = materialise(dataset, "file")
    assert "no file is kept: items hold objects that only memory can keep" in words()
    for index in range(len(dataset)):
        (scene, parts, number), expected = served[index], dataset[index]
        assert (scene, number) == (expected[0], expected[2]) and len(parts) == len(expected[1])
        assert all(torch.equal(one, two) for one, two in zip(parts, expected[1], strict=True))


def test_windows_that_overlap_are_kept_once(made, require_equal):
    dataset = made(window, count=40)
    served = materialise(dataset)
    require_equal(dataset, served)
    store = kept_of(served).store
    assert store.layout.modes == ("window", "window", "fixed")
    whole = 40 * (24 * 2 * 4 + 16 * 4 + 8)
    assert store.nbytes() < whole / 2


def test_rows_that_repeat_are_no_trap_for_windows(made, require_equal):
    steps = torch.tensor([0.0] * 12 + [1.0, 0.0] * 6 + [2.0] * 40)
    dataset = made(lambda index: steps[index : index + 10].clone(), count=50)
    require_equal(dataset, materialise(dataset))


def test_an_item_of_a_size_that_no_sample_had_is_kept_too(made, require_equal):
    dataset = made(lambda index: (torch.full((4 if index != 351 else 9,), index), index), count=400)
    served = materialise(dataset)
    require_equal(dataset, served)
    assert kept_of(served).store.layout.modes == ("ragged", "fixed")


def test_who_changes_an_item_changes_nothing_in_the_cache(made):
    dataset = made(lambda index: {"x": torch.full((3,), float(index)), "y": np.zeros(2), "z": [1, index]})
    served = materialise(dataset)
    for items in ([served[3]], served.__getitems__([3, 4])):
        items[0]["x"] += 1
        items[0]["y"][:] = 7
        items[0]["z"].append(5)
        del items[0]["x"]
    assert identical(served[3], dataset[3]) and identical(served.__getitems__([3])[0], dataset[3])


def test_wrappers_of_datasets(made, require_equal):
    one, two = made(lambda index: torch.tensor([index])), made(lambda index: torch.tensor([-index]), count=9)
    require_equal(ConcatDataset([one, two]), materialise(ConcatDataset([one, two])))
    require_equal(StackDataset(one, one), materialise(StackDataset(one, one)))
    picked = Subset(Subset(one, list(range(30, 0, -1))), [3, 3, 0, 29, 5])
    served = materialise(picked)
    require_equal(picked, served)
    assert kept_of(served).store.layout.count == 4  # each item once


def test_a_random_split_of_windows_still_overlaps(made, require_equal):
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1)).tolist()
    part = Subset(made(window), order[:30])
    served = materialise(part)
    require_equal(part, served)
    assert kept_of(served).store.layout.modes[0] == "window"


def test_what_is_no_number_of_an_item_goes_to_the_dataset(made):
    dataset = made(lambda index: torch.as_tensor(index, dtype=torch.int64))
    dataset.named = {"first": 0}
    served = materialise(dataset)
    assert served[torch.tensor(4)] == served[np.int64(4)] == 4
    with pytest.raises(IndexError):
        served[40]
    with pytest.raises(IndexError):
        served.__getitems__([1, -1])
    with pytest.raises(TypeError):
        served["first"]
    assert [int(item) for item in served] == list(range(40))
