"""Cut training sequences that are longer than this.

What it does
    In the loader that feeds training, cuts each item before it is put into a batch: the parts that are as long as the
    item's sequence (tokens, mask, labels for each token) keep their first `max-length` positions. The dataset itself
    and loaders that validate are left alone.
When it helps
    Few very long sequences decide the size of every batch, or memory.
What it costs
    What stands behind the cut is never seen. What counts positions in another way (spans, alignments) may point
    behind the end.
Numerics
    Other data: statistical.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import CannotActError, Knob, NotMineError, Numerics
from hotlap.ports.target import Loader, Seam, Undo
from hotlap.ports.values import Whole
from hotlap.probe.lengths import cut

_FEW = 3  # items that show whether there are lengths at all


class MaxLength(Knob):
    id = "max-length"
    relieves = frozenset({Cause.PADDING_WASTE})
    seam = Seam.LOADER
    numerics = Numerics.STATISTICAL
    values = Whole(1, 1 << 30)
    promise = (0.2, 0.4)
    shortens = True
    absent = "no DataLoader shows that it feeds training: none shuffles, drops its last batch or is called after it"

    def settings(self, host: Host, timeline: Timeline) -> tuple[int, ...]:
        """None by itself: what may be cut off is for people to say."""
        return ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return summarise(timeline).share(Stage.TRANSFER, Stage.FORWARD, Stage.BACKWARD)

    def apply(self, target: Loader, setting: int) -> Undo:
        if not target.training:
            raise NotMineError
        if isinstance(target.arguments["collate_fn"], Cutting):
            return target.change()  # a framework built the loader anew
        if target.arguments["batch_size"] is None and target.arguments["batch_sampler"] is None:
            raise CannotActError("the script makes its batches by itself (batch_size=None)")
        if target.iterable or target.lengths(_FEW) is None:
            raise CannotActError("the dataset's items have no length, or could not be read")
        return target.change(collate_fn=Cutting(target.arguments["collate_fn"], setting))


class Cutting:
    """The script's collate function on items that were cut. Can be pickled, and answers for the function inside."""

    def __init__(self, collate: Callable[[Any], Any] | None, most: int) -> None:
        from torch.utils.data import default_collate

        self._collate = default_collate if collate is None else collate
        self._most = most
        self.__qualname__ = getattr(self._collate, "__qualname__", type(self._collate).__qualname__)

    def __call__(self, items: Sequence[Any]) -> Any:
        return self._collate([cut(item, self._most) for item in items])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_collate":  # asked while it is unpickled, before there is one
            raise AttributeError(name)
        return getattr(self._collate, name)
