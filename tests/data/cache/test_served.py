"""A served dataset is the script's own in every way but where its items come from."""

from __future__ import annotations

import copy
import gc
import io
import multiprocessing
import pickle
from multiprocessing import context
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset

from hotlap.data import materialise
from hotlap.data.cache import materialise as materialising
from hotlap.data.cache.messages import CannotCacheError
from hotlap.data.cache.served import identical, kept_of
from hotlap.sameness import breach


class Tokens(Dataset):
    """A dataset with methods, properties and state, as scripts have them."""

    kinds = ("train", "test")
    made = 0

    def __init__(self, scale: int = 2) -> None:
        self.scale = scale
        self.shift = 0
        self.rows = list(range(25))
        self.weights = torch.ones(3)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        Tokens.made += 1
        return torch.tensor([self.rows[index] * self.scale + self.shift]) * self.weights

    @property
    def vocabulary(self) -> int:
        return self.scale * len(self.rows)

    def set_shift(self, shift: int) -> None:
        self.shift = shift

    def total(self) -> float:
        return float(sum(self[index][0] for index in range(len(self))))


class Slotted:
    """Cannot be given another dictionary of attributes."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows = [1.0, 2.0, 3.0]

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> float:
        return self.rows[index]


class Registered(Dataset):
    """Notes whoever extends it."""

    known: ClassVar[list[type]] = []

    def __init_subclass__(cls, **kwargs: Any) -> None:
        Registered.known.append(cls)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.usefixtures("unaudited")
def test_it_is_of_the_dataset_s_class_and_shares_its_attributes():
    dataset = Tokens()
    served = materialise(dataset)
    made = Tokens.made
    assert isinstance(served, Tokens) and type(served).__name__ == "Tokens"
    assert type(served).__qualname__ == "Tokens" and type(served).__module__ == __name__
    assert (served.scale, served.vocabulary, served.kinds, served.rows) == (
        2,
        50,
        ("train", "test"),
        dataset.rows,
    )
    assert served.total() == 600.0 and Tokens.made == made
    served.note = "seen"
    assert dataset.note == "seen"


@pytest.mark.parametrize(
    "change",
    [
        lambda dataset, served: served.set_shift(3),
        lambda dataset, served: setattr(dataset, "shift", 3),
        lambda dataset, served: dataset.rows.append(7),
        lambda dataset, served: dataset.weights.mul_(2),
        lambda dataset, served: setattr(dataset, "weights", torch.zeros(3)),
    ],
)
def test_a_dataset_that_the_script_changes_is_served_as_it_is_now(change, words):
    dataset = Tokens()
    served = materialise(dataset)
    words()
    change(dataset, served)
    assert [each.tolist() for each in served] == [each.tolist() for each in dataset]
    assert identical(served.__getitems__([3, 1]), [dataset[3], dataset[1]])
    assert (
        words().count(
            "was changed by the script after items were kept: items of Tokens are no longer served from the cache"
        )
        == 1
    )


class Shared(Dataset):
    """Tells its workers, which live on, by memory that they share; the items of both epochs happen to be the same at
    every place that is looked at."""

    def __init__(self, cell: Any) -> None:
        self.turn = cell

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> int:
        turn = self.turn.value if hasattr(self.turn, "value") else int(self.turn)
        return index + (turn if index == 215 else 0)


@pytest.mark.parametrize(
    ("cell", "change"),
    [
        (lambda: torch.zeros((), dtype=torch.int64).share_memory_(), lambda cell: cell.fill_(5)),
        (lambda: multiprocessing.Value("l", 0), lambda cell: setattr(cell, "value", 5)),
        (lambda: multiprocessing.RawValue("l", 0), lambda cell: setattr(cell, "value", 5)),
    ],
    ids=["tensor", "value", "raw"],
)
def test_workers_that_live_on_see_what_was_changed_in_shared_memory(cell, change):
    dataset = Shared(cell())
    loader = DataLoader(materialise(dataset), batch_size=100, num_workers=1, persistent_workers=True)
    assert torch.cat(list(loader))[215] == 215
    change(dataset.turn)
    assert torch.cat(list(loader))[215] == 220


def test_a_change_below_is_seen_too():
    dataset = Tokens()
    served = materialise(Subset(dataset, [5, 3]))
    dataset.shift = 100
    assert served[1].tolist() == [106.0] * 3


def test_copies_and_pickles_are_those_of_the_original():
    dataset = Tokens()
    served = materialise(dataset)
    for other in (copy.copy(served), copy.deepcopy(served), pickle.loads(pickle.dumps(served))):
        assert type(other) is Tokens
        other.shift = 5
        assert dataset.shift == 0
    stream = io.BytesIO()
    torch.save(served, stream)
    for content in (pickle.dumps(served), pickle.dumps(served, 0), stream.getvalue()):
        assert b"hotlap" not in content


@pytest.mark.usefixtures("unaudited")
@pytest.mark.parametrize("keep", ["memory", "file"])
def test_a_spawned_worker_shares_the_cache(keep, monkeypatch):
    dataset = Tokens()
    del dataset.weights  # torch would ask the process that is being started for room
    dataset.weights = 1
    served = materialise(dataset, keep)
    with monkeypatch.context() as patched:
        patched.setattr(context, "get_spawning_popen", lambda: object())
        text = bytes(ForkingPickler.dumps(served))
    other = pickle.loads(text)
    made = Tokens.made
    assert kept_of(other).store is not kept_of(served).store
    assert identical(other[4], served[4]) and Tokens.made == made
    assert len(text) < 4000


def test_forked_workers_share_the_memory(batches):
    dataset = Tokens()
    served = materialise(dataset)
    assert identical(batches(served, num_workers=2), batches(dataset))
    assert multiprocessing.active_children() == []


def test_classes_that_cannot_be_extended_are_forwarded_to():
    served = materialise(Slotted())
    assert [served[0], served[2]] == [1.0, 3.0] and len(served) == 3 and served.rows == [1.0, 2.0, 3.0]
    registered = materialise(Registered())
    assert Registered.known == [] and registered[2] == 2


def test_a_loader_that_is_built_anew_takes_the_same_cache():
    dataset = Tokens()
    store = kept_of(materialise(dataset)).store
    assert kept_of(materialise(dataset)).store is store
    dataset.shift = 1
    assert kept_of(materialise(dataset)).store is not store


def test_memory_goes_with_the_dataset():
    def held() -> int:
        return sum(
            "hotlap-" in str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()
        )

    gc.collect()
    before, dataset = held(), Tokens()
    served = materialise(dataset)
    assert held() > before
    number = id(dataset)
    del dataset, served
    gc.collect()
    assert held() == before and number not in materialising._remembered


class Indexed(Dataset):
    """Its items hold their index as it was given."""

    def __init__(self) -> None:
        self.table = np.arange(60.0)

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor(self.table[index]), torch.tensor(index)


def test_an_index_of_another_type_is_compared_before_it_is_served() -> None:
    dataset = Indexed()
    served = materialise(dataset)
    assert served[3][1].dtype is torch.int64
    assert identical(served[np.int64(4)], dataset[np.int64(4)]) and not kept_of(served).dropped
    assert identical(served[np.int32(5)], dataset[np.int32(5)]) and kept_of(served).dropped


def test_a_change_between_epochs_ends_the_cache_before_a_batch_and_is_no_breach() -> None:
    breach.found.clear()
    dataset = Indexed()
    kept = kept_of(served := materialise(dataset))
    for index in range(60):
        served[index]
    kept.at_bound()
    assert not kept.dropped
    dataset.table += 1.0
    kept.at_bound()
    assert kept.dropped and not breach.found


def test_a_change_that_is_found_when_an_epoch_ends_is_a_breach() -> None:
    breach.found.clear()
    dataset = Indexed()
    kept = kept_of(served := materialise(dataset))
    kept.watch._pace.due = lambda: False  # nothing is compared in between
    dataset.table += 1.0
    served[7]
    kept.at_bound()
    assert kept.dropped and [each.batches for each in breach.found] == [1]
    breach.found.clear()


def test_tensors_with_attributes_are_not_kept() -> None:
    class Marked(Indexed):
        def __getitem__(self, index: Any) -> torch.Tensor:
            row = torch.tensor(self.table[index])
            row.weight = 1.0  # type: ignore[attr-defined]
            return row

    with pytest.raises(CannotCacheError, match="weight"):
        materialise(Marked())
