"""Make batches of sequences of like length, so that less of them is padding.

What it does
    Takes the order of the training loader's own sampler, sorts pools of 50 batches by length, cuts them into batches
    and shuffles the batches. Each epoch has the same samples as before, and as many batches. The shuffle depends on
    the epoch alone: every rank has batches of like length at the same step. Lengths are the dataset's `lengths`, or
    are read from its items once, by their first dimension. `rows`: as many samples in each batch as the script asks
    for. `tokens`: as many on average; each batch holds about as many positions as any other, many short samples or a
    few long ones, at least two.
When it helps
    Sequences of different lengths are padded to the longest of their batch. `tokens`: some are many times as long as
    most, so that a larger batch of them costs more memory and time than it saves elsewhere.
What it costs
    Reading every item once at the start, up to a minute, where the dataset does not say its lengths. Samples of a
    batch are no longer independent in length. `tokens`: batches have different numbers of samples.
Numerics
    The same samples in other batches: statistical. With `tokens` a loss that is a mean over its batch counts a sample
    among few for more than one among many; a mean over positions counts all of these alike, as `rows` does not.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import CannotActError, Knob, NotMineError, Numerics
from hotlap.ports.target import Loader, Seam, Undo
from hotlap.ports.values import Choice

POOL = 50  # batches that are sorted together: under 10 % padding of typical lengths; 500 gain little
_FEW = 3  # items that show whether there are lengths at all
_ROWS, _TOKENS, _OFF = "rows", "tokens", "off"
_LEAST_ROWS = 2  # of a batch of tokens: batch norm and contrastive losses have no use for one alone


class Bucketing(Knob):
    id = "bucketing"
    relieves = frozenset({Cause.PADDING_WASTE})
    seam = Seam.LOADER
    numerics = Numerics.STATISTICAL
    values = Choice((_ROWS, _TOKENS, _OFF), {"on": _ROWS, "true": _ROWS, "false": _OFF})
    absent = "no DataLoader shows that it feeds training: none shuffles, drops its last batch or is called after it"

    def settings(self, host: Host, timeline: Timeline) -> tuple[str, ...]:
        return (_TOKENS, _ROWS) if summarise(timeline).padding_share else ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        summary = summarise(timeline)
        return (summary.padding_share or 0.0) * summary.share(Stage.TRANSFER, Stage.FORWARD, Stage.BACKWARD)

    def apply(self, target: Loader, setting: str) -> Undo:
        if not target.training:
            raise NotMineError
        if setting == _OFF or isinstance(target.arguments["batch_sampler"], Buckets):
            return target.change()
        if setting == _TOKENS and _shared_out_by_samples():
            raise CannotActError("Accelerate passes over batches of other sizes than most: rows can act")
        # Lengths go with the class: Lightning makes another one of it for ranks, with a sampler of theirs.
        cuts = TokenBuckets if setting == _TOKENS else Buckets
        kind = type(cuts.__name__, (cuts,), {"lengths": _lengths(target)})

        def put_in(loader: Any) -> None:
            # Not as an argument: `loader.sampler`, `batch_size` and `drop_last` stay what the script gave.
            own = loader.batch_sampler
            loader.__dict__["batch_sampler"] = kind(own.sampler, own.batch_size, own.drop_last)

        target.after.append(put_in)
        return lambda: target.after.remove(put_in)


def _shared_out_by_samples() -> bool:
    """Several ranks whose batches come out of one sampler, of which only full ones are shared out."""
    return int(os.environ.get("WORLD_SIZE") or 1) > 1 and "accelerate.data_loader" in sys.modules


def _lengths(target: Loader) -> Sequence[int]:
    from torch.utils.data import BatchSampler

    batches = target.arguments["batch_sampler"]
    if target.iterable:
        raise CannotActError("an IterableDataset gives its items in its own order")
    if batches is not None and type(batches) is not BatchSampler:
        raise CannotActError(f"the script has a batch sampler of its own ({type(batches).__name__})")
    if batches is None and target.arguments["batch_size"] is None:
        raise CannotActError("the script makes its batches by itself (batch_size=None)")
    if target.lengths(_FEW) is None:
        raise CannotActError("the dataset's items have no length, or could not be read")
    lengths = target.lengths(0)
    if lengths is None:
        raise CannotActError(
            "the lengths of all items could not be read within a minute; give the dataset a list `lengths`"
        )
    if len(set(lengths)) == 1:
        raise CannotActError(f"all items have the same length ({lengths[0]})")
    return lengths


class Buckets:
    """A batch sampler on the script's own sampler."""

    lengths: ClassVar[Sequence[int]]

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool) -> None:
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        count = len(self.sampler)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def __iter__(self) -> Iterator[list[Any]]:
        order = list(self.sampler)
        if self.drop_last:
            order = order[: len(order) - len(order) % self.batch_size]
        batches = [batch for pool in self._pools(order) for batch in self._cut(pool)]
        shuffle = random.Random(self.epoch)
        self.epoch += 1
        shuffle.shuffle(batches)
        return iter(batches)

    def _pools(self, order: list[Any]) -> list[list[Any]]:
        size = POOL * self.batch_size
        return [order[at : at + size] for at in range(0, len(order), size)]

    def _cut(self, pool: list[Any]) -> list[list[Any]]:
        pool = sorted(pool, key=self.lengths.__getitem__)
        return [pool[at : at + self.batch_size] for at in range(0, len(pool), self.batch_size)]


class TokenBuckets(Buckets):
    """As many batches, of as many positions each as can be: a script that counts its steps makes as many as before."""

    def _cut(self, pool: list[Any]) -> list[list[Any]]:
        pool = sorted(pool, key=self.lengths.__getitem__, reverse=True)
        count = -(-len(pool) // self.batch_size)
        longest = max(1, self.lengths[pool[0]])
        low, high = 0, longest * self.batch_size  # of the latter no more than `count` batches come
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if len(self._within(pool, middle)) <= count else (middle, high)
        batches = self._within(pool, high)
        while len(batches) < count:  # a position more and there were two batches less
            largest = max(range(len(batches)), key=lambda at: len(batches[at]))
            whole = batches.pop(largest)
            batches[largest:largest] = [whole[: len(whole) // 2], whole[len(whole) // 2 :]]
        return batches

    def _within(self, pool: list[Any], positions: int) -> list[list[Any]]:
        """Batches of so many positions at most, from the longest samples to the shortest."""
        batches, at, least = [], 0, min(_LEAST_ROWS, self.batch_size)
        while at < len(pool):
            rows = max(least, positions // max(1, self.lengths[pool[at]]))
            batches.append(pool[at : at + rows])
            at += rows
        if len(batches) > 1 and len(batches[-1]) < least:
            left = batches.pop()
            batches[-1] += left
        return batches
