"""Batches of sequences of like length: buckets, token budgets, padding to the longest of a batch.

A padded batch costs as much as its longest sequence for every row. Sorting within pools makes the rows of a batch
alike, and shuffling the batches keeps training random. Batches depend on the seed and the epoch alone: every rank
computes the same list and takes its own part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import Sampler, default_collate

from hotlap.errors import HotlapError

POOL_BATCHES = (
    50  # sorting this many batches at once leaves under 10 % padding of typical lengths; 500 gain little
)


class _PooledBatches(Sampler[list[int]]):
    """Pools of a permutation, sorted by length and cut into batches; subclasses say where to cut.

    Ranks get batches of neighbouring length at the same step, so that none waits for the longest of another.
    The epoch moves on with every pass; `set_epoch` sets it, as on torch's DistributedSampler.
    """

    def __init__(
        self,
        lengths: Sequence[int] | torch.Tensor,
        pool: int,
        shuffle: bool,
        seed: int,
        drop_last: bool,
        ranks: tuple[int, int] | None,
    ) -> None:
        self.lengths = torch.as_tensor(lengths, dtype=torch.int64)
        self.pool, self.shuffle, self.seed, self.drop_last = pool, shuffle, seed, drop_last
        self.rank, self.world = ranks if ranks is not None else _own_rank()
        self.epoch = 0
        self._known: tuple[int, list[list[int]]] | None = None
        if not 0 <= self.rank < self.world:
            raise HotlapError(f"rank {self.rank} of {self.world} does not exist", "ranks count from 0")

    def cut(self, pool: list[int]) -> list[list[int]]:
        """Batches of a pool, which is sorted from the longest to the shortest."""
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.epoch = state["epoch"]

    def batches(self, epoch: int) -> list[list[int]]:
        """This rank's batches of an epoch."""
        if self._known is None or self._known[0] != epoch:
            self._known = epoch, self._draw(epoch)
        return self._known[1]

    def waste(self) -> float:
        """Share of the positions of the coming epoch that are padding."""
        return padding_waste(self.lengths, self.batches(self.epoch))

    def __iter__(self) -> Iterator[list[int]]:
        # A generator: torch asks for an iterator twice when it starts workers, and only one of them is used.
        epoch, self.epoch = self.epoch, self.epoch + 1
        for batch in self.batches(epoch):
            yield list(batch)

    def __len__(self) -> int:
        return len(self.batches(self.epoch))

    def _draw(self, epoch: int) -> list[list[int]]:
        random = torch.Generator().manual_seed(self.seed + epoch)
        count = len(self.lengths)
        order = torch.randperm(count, generator=random) if self.shuffle else torch.arange(count)
        found: list[list[int]] = []
        for pool in torch.split(order, self.pool):
            by_length = torch.argsort(self.lengths[pool], descending=True, stable=True)
            found += self.cut(pool[by_length].tolist())
        steps = self._steps(found)
        turn = torch.randperm(len(steps), generator=random).tolist() if self.shuffle else range(len(steps))
        return [steps[index][self.rank] for index in turn]

    def _steps(self, batches: list[list[int]]) -> list[list[list[int]]]:
        """One batch for every rank at each step; the last step is filled up from the first, or dropped."""
        steps = [batches[at : at + self.world] for at in range(0, len(batches), self.world)]
        if steps and len(steps[-1]) < self.world:
            if self.drop_last:
                steps.pop()
            else:
                missing = self.world - len(steps[-1])
                steps[-1] = steps[-1] + (batches * missing)[:missing]
        return steps


class BucketBatchSampler(_PooledBatches):
    """Batches of `batch_size` sequences of like length.

    `pool_batches` batches are sorted at a time: more of them pad less and mix less. With `drop_last`, batches that
    are not full are left out. `ranks` is (rank, world size); asked from torch.distributed where it is not given.
    """

    def __init__(
        self,
        lengths: Sequence[int] | torch.Tensor,
        batch_size: int,
        *,
        pool_batches: int = POOL_BATCHES,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        ranks: tuple[int, int] | None = None,
    ) -> None:
        if batch_size < 1 or pool_batches < 1:
            raise HotlapError(
                f"batches of {batch_size} in pools of {pool_batches} hold nothing",
                "give batch_size and pool_batches of at least 1",
            )
        self.batch_size = batch_size
        super().__init__(lengths, batch_size * pool_batches, shuffle, seed, drop_last, ranks)

    def cut(self, pool: list[int]) -> list[list[int]]:
        batches = [pool[at : at + self.batch_size] for at in range(0, len(pool), self.batch_size)]
        if self.drop_last and batches and len(batches[-1]) < self.batch_size:
            batches.pop()
        return batches


class TokenBudgetSampler(_PooledBatches):
    """Batches of at most `tokens` positions, padding included: many short sequences, or few long ones.

    Every batch then costs about the same time and memory. The number of batches differs a little from epoch to
    epoch. About `pool_batches` batches are sorted at a time.
    """

    def __init__(
        self,
        lengths: Sequence[int] | torch.Tensor,
        tokens: int,
        *,
        most_rows: int | None = None,
        pool_batches: int = POOL_BATCHES,
        shuffle: bool = True,
        seed: int = 0,
        ranks: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(lengths, 1, shuffle, seed, False, ranks)
        self.tokens, self.most_rows = tokens, most_rows
        mean = float(self.lengths.double().mean()) if len(self.lengths) else 1.0
        self.pool = pool_batches * max(1, min(round(tokens / max(1.0, mean)), most_rows or tokens))
        if len(self.lengths) and (longest := int(self.lengths.max())) > tokens:
            raise HotlapError(
                f"sequence {int(self.lengths.argmax())} has {longest} positions, the budget of a batch is {tokens}",
                f"allow at least {longest}, or cut or leave out longer sequences",
            )

    def cut(self, pool: list[int]) -> list[list[int]]:
        lengths = self.lengths[torch.tensor(pool, dtype=torch.int64)].tolist()
        batches, at = [], 0
        while at < len(pool):
            rows = self.tokens // max(1, lengths[at])  # sorted: the first row is the longest
            rows = min(rows, self.most_rows or rows)
            batches.append(pool[at : at + rows])
            at += rows
        return batches


def padding_waste(
    lengths: Sequence[int] | torch.Tensor, batches: Iterable[Sequence[int]], padded_to: int | None = None
) -> float:
    """Share of positions that only fill batches up, when each is padded to its longest row (or to `padded_to`)."""
    known = torch.as_tensor(lengths, dtype=torch.int64)
    real = padded = 0
    for batch in batches:
        rows = known[torch.as_tensor(batch, dtype=torch.int64)]
        if len(rows):
            real += int(rows.sum())
            padded += len(rows) * (int(rows.max()) if padded_to is None else padded_to)
    return 1.0 - real / padded if padded else 0.0


def pad_collate(items: Sequence[Any], *, padding: float | Mapping[Any, float] = 0) -> Any:
    """As torch's default collate, but tensors of different sizes are padded at their ends to the largest.

    `padding` is one value, or values by key for items that are mappings (`{"labels": -100}`; others get 0).
    """
    first = items[0]
    if isinstance(first, Mapping):
        values = padding if isinstance(padding, Mapping) else dict.fromkeys(first, padding)
        return {key: pad_collate([item[key] for item in items], padding=values.get(key, 0)) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(pad_collate(column, padding=padding) for column in zip(*items, strict=True)))
    if isinstance(first, tuple | list) and not _is_ragged_numbers(items):
        return [pad_collate(column, padding=padding) for column in zip(*items, strict=True)]
    if type(first).__module__ == "numpy" or isinstance(first, list):
        items = [torch.as_tensor(item) for item in items]
    if isinstance(items[0], torch.Tensor):
        return _stacked(items, padding if not isinstance(padding, Mapping) else 0)
    return default_collate(list(items))


def _is_ragged_numbers(items: Sequence[Any]) -> bool:
    """Lists of plain numbers are sequences too, as tokenizers give them."""
    return all(
        isinstance(item, list) and all(isinstance(each, int | float) for each in item) for item in items
    )


def _stacked(tensors: Sequence[torch.Tensor], padding: float) -> torch.Tensor:
    first = tensors[0]
    if all(each.shape == first.shape for each in tensors):
        return torch.stack(list(tensors))
    largest = [max(sizes) for sizes in zip(*(each.shape for each in tensors), strict=True)]
    batch = first.new_full((len(tensors), *largest), padding)
    for row, each in zip(batch, tensors, strict=True):
        row[tuple(slice(size) for size in each.shape)] = each
    return batch


def _own_rank() -> tuple[int, int]:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1
