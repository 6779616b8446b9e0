"""What is not the same each time is not kept, and the reason is told; looking leaves no trace in the script."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, TensorDataset

from hotlap.data import CannotCacheError, materialise
from hotlap.data.cache import child, proof
from hotlap.data.cache import proof as budget
from hotlap.data.cache.source import source_of
from hotlap.sameness import random_states

GENERATOR = np.random.default_rng(3)


def draws_and_drops(index: int) -> int:
    torch.rand(1)
    return index


def dies(index: int) -> int:
    return index if index != 33 else os._exit(7)


def seldom_random(index: int) -> float:
    """No sample meets it."""
    return float(index) if index != 215 else random.random()


def changes_kind(index: int) -> Any:
    return torch.zeros(2) if index != 215 else "nothing here"


REFUSED = {
    "draws random numbers of torch": lambda index: torch.rand(2),
    "draws random numbers of NumPy": lambda index: np.random.rand(2),
    "draws random numbers of Python": lambda index: random.random(),
    "is another one when it is fetched again": lambda index: GENERATOR.normal(),
    "is another one in another process": lambda index: os.getpid(),
    "items differ in structure: ['x'] is float <f8 in one item and int <i8": lambda index: {
        "x": index if index else 0.5
    },
    "items differ in structure: the item is a dict of x in one item and a dict of y": lambda index: {
        "xy"[index % 2]: 1
    },
    "has 1 dimensions in one item and 2 in another": lambda index: torch.zeros((2,) * (1 + index % 2)),
    "requires a gradient": lambda index: torch.zeros(2, requires_grad=True),
    "ZeroDivisionError at test_proof.py": lambda index: 1 // index,
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refused_with_the_reason(made, reason):
    with pytest.raises(CannotCacheError) as refusal:
        materialise(made(REFUSED[reason]))
    assert reason in refusal.value.what


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (draws_and_drops, "draws random numbers of torch"),
        (seldom_random, "draws random numbers of Python"),
        (changes_kind, "item 215 differs in structure from others: the item is tensor float32 in one item"),
        (dies, "died (exit code 7)"),
    ],
)
def test_the_build_looks_at_every_item(made, make, reason):
    with pytest.raises(CannotCacheError) as refusal:
        materialise(made(make, count=400))
    assert reason in refusal.value.what


class Drawn(Dataset):
    """What is random of an item follows from the seed, the epoch and its number: no random numbers are shared."""

    def __init__(self, chance: float = 0.3, shared: bool = True) -> None:
        self.chance = chance
        self.epoch: Any = torch.zeros((), dtype=torch.int64).share_memory_() if shared else 0

    def __len__(self) -> int:
        return 40

    def set_epoch(self, epoch: int) -> None:
        if isinstance(self.epoch, torch.Tensor):
            self.epoch.fill_(epoch)
        else:
            self.epoch = epoch

    def __getitem__(self, index: int) -> torch.Tensor:
        own = np.random.default_rng((7, int(self.epoch), index))
        noise = own.normal() if own.random() < self.chance else 0.0
        return torch.tensor([index, noise])


@pytest.mark.parametrize("keep", ["memory", "file"])
@pytest.mark.parametrize("shared", [True, False])
def test_items_that_change_with_the_epoch_are_not_kept(shared, keep):
    dataset = Drawn(shared=shared)
    with pytest.raises(CannotCacheError, match="is another one in another epoch"):
        materialise(dataset, keep)
    assert int(dataset.epoch) == 0


def test_a_dataset_that_is_told_the_epoch_for_nothing_is_kept(require_equal):
    require_equal(Drawn(chance=0.0), materialise(Drawn(chance=0.0)))


def test_what_cannot_be_told_the_epoch_is_refused():
    dataset = Drawn()
    dataset.set_epoch = None  # type: ignore[method-assign, assignment]
    with pytest.raises(
        CannotCacheError, match="told the epoch, and its items of another one could not be looked at"
    ):
        materialise(dataset)


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter(range(3))


class Endless(Dataset):
    def __getitem__(self, index: int) -> int:
        return index


class Doubled(Dataset):
    """At once it gives other items than one by one."""

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> int:
        return index

    def __getitems__(self, indices: list[int]) -> list[int]:
        return [2 * index for index in indices]


@pytest.mark.parametrize(
    ("dataset", "reason"),
    [
        (Stream(), "is a stream"),
        (Endless(), "has no length"),
        ([], "is empty"),
        (Doubled(), "its __getitems__ gives other items than its __getitem__"),
        (TensorDataset(torch.zeros(3)), "tensors in memory already"),
    ],
)
def test_datasets_that_are_none_to_keep(dataset, reason):
    with pytest.raises(CannotCacheError, match=reason):
        materialise(dataset)


def test_what_does_not_fit_is_refused_with_both_sizes(made, monkeypatch):
    monkeypatch.setattr(budget, "free_memory", lambda: 40 * 4096 * 4)
    dataset = made(lambda index: torch.full((1024,), float(index)))
    materialise(dataset)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with pytest.raises(
        CannotCacheError, match=r"need 161 KiB for each of 4 ranks, and 640 KiB of memory are free"
    ):
        materialise(made(dataset.make))


def test_items_that_grow_beyond_the_estimate_end_the_build(made, monkeypatch):
    monkeypatch.setattr(budget, "free_memory", lambda: 1 << 20)
    large = {row for row in range(300) if row not in proof.samples(300)}
    with pytest.raises(CannotCacheError, match=r"take more than 1.00 MiB"):
        materialise(made(lambda index: b"x" * (40_000 if index in large else 9), count=300))


def test_a_container_s_limit_counts(tmp_path):
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("700000\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 100000\n")
    assert budget._left(tmp_path) == [400_000]
    (tmp_path / "memory.max").write_text("max\n")
    assert budget._left(tmp_path) == []
    assert 0 < budget.free_memory() < 1 << 50


class Counting(Dataset):
    """Opens its file late, counts, and reads on where it stopped: all of it is state that others must not move."""

    def __init__(self, path: Any) -> None:
        self.opened = path.open("rb")
        self.fetched, self.late = 0, None
        self.rng = np.random.default_rng(0)

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> bytes:
        self.late = self.late or object()
        self.fetched += 1
        self.rng.random()
        self.opened.seek(index * 1000)
        return self.opened.read(1000)


def test_nothing_moves_in_the_script_s_own_process(tmp_path, require_equal):
    path = tmp_path / "content"
    path.write_bytes(os.urandom(60_000))
    dataset = Counting(path)
    dataset.opened.seek(123)
    place, numbers, states = (
        os.lseek(dataset.opened.fileno(), 0, os.SEEK_CUR),
        dataset.rng.bit_generator.state,
        random_states.states(),
    )
    assert proof.prove(source_of(dataset)[0]).alone  # two processes would move the position of each other
    served = materialise(dataset)
    assert not random_states.moved(states)
    assert (dataset.fetched, dataset.late, dataset.rng.bit_generator.state) == (0, None, numbers)
    assert os.lseek(dataset.opened.fileno(), 0, os.SEEK_CUR) == place
    content = path.read_bytes()
    assert [served[index] for index in range(60)] == [content[at * 1000 :][:1000] for at in range(60)]
    dataset.opened.close()


def test_slow_items_are_not_all_sampled(made, monkeypatch):
    monkeypatch.setattr(proof, "ENOUGH_S", 0.02)
    dataset = made(lambda index: time.sleep(0.01) or index, count=1000)
    seen = proof.prove(source_of(dataset)[0])
    assert proof.LEAST <= len(seen.digests) < len(proof.samples(1000))
    assert seen.item_s >= 0.01


def test_an_item_that_never_comes_is_given_up(made, monkeypatch):
    monkeypatch.setattr(proof, "PATIENCE_S", 0.5)
    with pytest.raises(CannotCacheError, match="did not arrive within 0 s"):
        materialise(made(lambda index: time.sleep(60)))


def test_a_list_is_a_dataset_too(require_equal):
    items = [(torch.tensor([index]), index) for index in range(20)]
    require_equal(items, materialise(items))


def test_items_that_depend_on_the_number_of_threads_are_refused(made):
    """A long sum is rounded differently by two threads. The parent's own threads have worked before the fork."""
    values = torch.sin(torch.arange(1_000_001.0))
    threads = torch.get_num_threads()
    try:
        sums = set()
        for each in (1, 2):
            torch.set_num_threads(each)
            sums.add(float(values.sum()))
        if len(sums) == 1:
            pytest.skip("both sums are rounded alike on this machine")
        with pytest.raises(CannotCacheError, match="is another one when torch computes it with 2 threads"):
            materialise(made(lambda index: values.sum() + index))
        torch.set_num_threads(1)
        assert float(materialise(made(lambda index: values.sum() + index))[3]) == float(values.sum() + 3)
    finally:
        torch.set_num_threads(threads)


def test_a_script_that_holds_signals_back_does_not_hold_its_children():
    source, _ = source_of(TensorDataset(torch.arange(6.0)))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        asked = child.HelperProcess(source, 5)
        asked.ask(proof.look, [0, 3], False)
        asked.answer(120.0)
        asked.process.terminate()
        asked.process.join(child.ENDS_WITHIN_S)
        assert asked.process.exitcode == -signal.SIGTERM
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        asked.end()


def test_where_processes_are_spawned(monkeypatch):
    """The dataset goes over by pickle; what cannot be pickled is refused."""
    monkeypatch.setattr(child, "start_method", lambda: "spawn")
    dataset = ConcatDataset([TensorDataset(torch.arange(6.0)), TensorDataset(torch.zeros(3))])
    source, _ = source_of(dataset)
    seen = child.call(source, 5, 120.0, proof.look, [0, 4, 8], False)
    assert seen.digests[4] == proof.digest(dataset[4])[0] and len(seen.digests) == 3
    with pytest.raises(CannotCacheError, match="no other process could be started for it"):
        child.call(source_of([lambda: 1])[0], 5, 120.0, proof.look, [0], False)
