"""Cut off the positions at the end of a batch that only pad in all of its rows.

What it does
    In the loader that feeds training, after the script's collate function: where a mask, lengths, or rows of integers
    that end in runs of one value show how long the longest row of the batch is, every tensor of the batch that is as
    long as the padded rows keeps that many positions. Nothing that holds data is cut off.
When it helps
    Items are padded to a fixed length (`padding="max_length"`) that few of them have.
What it costs
    Batches of unlike lengths: a compiled model may be compiled again for some of them. A model that needs rows of one
    fixed length cannot be trained.
Numerics
    The same samples in the same batches. A mean or a normalisation over all positions sees less padding: statistical.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import CannotActError, Knob, NotMineError, Numerics
from hotlap.ports.target import Loader, Seam, Undo
from hotlap.ports.values import Flag
from hotlap.probe.lengths import rebuilt

_SHOWN_BY = 8  # batches with a count of their positions


class TrimPadding(Knob):
    id = "trim-padding"
    relieves = frozenset({Cause.PADDING_WASTE})
    seam = Seam.LOADER
    numerics = Numerics.STATISTICAL
    values = Flag()
    absent = "no DataLoader shows that it feeds training: none shuffles, drops its last batch or is called after it"

    def settings(self, host: Host, timeline: Timeline) -> tuple[bool, ...]:
        return (True,) if _of_one_length(timeline) else ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        if not _of_one_length(timeline):
            return 0.0
        summary = summarise(timeline)
        return (summary.padding_share or 0.0) * summary.share(Stage.TRANSFER, Stage.FORWARD, Stage.BACKWARD)

    def apply(self, target: Loader, setting: bool) -> Undo:
        if not target.training:
            raise NotMineError
        if not setting or isinstance(target.arguments["collate_fn"], Trimming):
            return target.change()  # switched off, or a framework built the loader anew
        if target.arguments["batch_size"] is None and target.arguments["batch_sampler"] is None:
            raise CannotActError("the script makes its batches by itself (batch_size=None)")
        return target.change(collate_fn=Trimming(target.arguments["collate_fn"]))


def _of_one_length(timeline: Timeline) -> bool:
    """Whether rows are padded to a length that is the same in all batches, while what they hold is not."""
    steps = timeline.steps
    counted = [
        (tokens, (tokens + padded) / samples)
        for tokens, padded, samples in zip(steps.tokens, steps.padded, steps.samples, strict=True)
        if tokens >= 0 and padded > 0 and samples > 0
    ]
    lengths = {length for _, length in counted}
    return len(counted) >= _SHOWN_BY and len(lengths) == 1 and len({tokens for tokens, _ in counted}) > 1


class Trimming:
    """The script's collate function, and its batches without what only pads. Can be pickled, and answers for the
    function inside."""

    def __init__(self, collate: Callable[[Any], Any] | None) -> None:
        from torch.utils.data import default_collate

        from hotlap.probe.batch import TokenCounter

        self._collate = default_collate if collate is None else collate
        self._tokens = TokenCounter()
        self.__qualname__ = getattr(self._collate, "__qualname__", type(self._collate).__qualname__)

    def __call__(self, items: list[Any]) -> Any:
        batch = self._collate(items)
        found = self._tokens.needed(batch)
        if found is None or not 0 < found[0] < found[1]:
            return batch
        return _cut(batch, len(items), *found)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_collate", "_tokens"):  # asked for while it is unpickled
            raise AttributeError(name)
        return getattr(self._collate, name)


def _cut(batch: Any, rows: int, most: int, size: int) -> Any:
    """Tensors of so many rows and positions with their first `most` positions; all else as it is."""
    import torch

    def shortened(part: Any) -> Any:
        if not isinstance(part, torch.Tensor):
            return None
        if part.dim() < 2 or part.shape[0] != rows:
            return part
        long = [dim for dim in range(1, part.dim()) if part.shape[dim] == size]
        for dim in long if part.dtype is torch.bool else long[:1]:
            part = part.narrow(dim, 0, most)
        return part.contiguous()

    return rebuilt(batch, shortened)
