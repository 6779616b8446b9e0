"""Train with batches of another size.

What it does
    Builds the DataLoader that feeds training with this many samples in a batch, for each rank. Its sampler, also one
    for ranks, and `drop_last` stay. Which loader feeds training is told by its name (`train_loader`,
    `train_dataloader()`), else by shuffling or `drop_last`; loaders that validate are left alone.
When it helps
    Steps are so short that starting them costs more than computing them, and memory is left.
What it costs
    Memory in proportion. Fewer, larger steps learn differently: see `scale-lr`, or `accumulate` to keep the effective
    batch.
Numerics
    Another training run: statistical.
"""

from __future__ import annotations

from typing import Any

from hotlap.cost.reading import training_loader
from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import CannotActError, Knob, NotMineError, Numerics
from hotlap.ports.target import Loader, Seam, Undo
from hotlap.ports.values import Whole

_TIMES = (2, 4)


class BatchSize(Knob):
    id = "batch-size"
    relieves = frozenset({Cause.BATCH_TOO_SMALL, Cause.LAUNCH_BOUND})
    seam = Seam.LOADER
    numerics = Numerics.STATISTICAL
    values = Whole(1, 1 << 24)
    promise = (1.0, 2.0)
    absent = "no DataLoader shows that it feeds training: none shuffles, drops its last batch or is called after it"

    def settings(self, host: Host, timeline: Timeline) -> tuple[int, ...]:
        found = training_loader(timeline)
        if found is None or not found[1].batch_size:
            return ()
        length = found[1].dataset.length
        larger = (times * found[1].batch_size for times in _TIMES)
        return tuple(size for size in larger if length is None or size <= length)

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        """Where a step costs the same however large it is, all but the data is paid once instead of several times."""
        settings = self.settings(host, timeline)
        found = training_loader(timeline)
        if not settings or found is None or not found[1].batch_size:
            return 0.0
        fixed = summarise(timeline).share(Stage.FORWARD, Stage.BACKWARD, Stage.OPTIMIZER, Stage.OTHER)
        return fixed * (1.0 - found[1].batch_size / settings[-1])

    def apply(self, target: Loader, setting: int) -> Undo:
        if not target.training:
            raise NotMineError
        batches = target.arguments["batch_sampler"]
        if batches is None:
            return _with_size(target, setting)
        if getattr(batches, "batch_size", None) == setting:
            return target.change()  # a framework built the loader anew around batches of that size
        return _with_sampler(target, batches, setting)


def _with_size(target: Loader, setting: int) -> Undo:
    arguments = target.arguments
    if arguments["batch_size"] is None:
        raise CannotActError("the script makes its batches by itself (batch_size=None)")
    _refuse_nothing(arguments["sampler"], arguments, setting, arguments["drop_last"])
    return target.change(batch_size=setting)


def _with_sampler(target: Loader, batches: Any, setting: int) -> Undo:
    from torch.utils.data import BatchSampler

    if type(batches) is not BatchSampler:
        raise CannotActError(
            f"the script has a batch sampler of its own ({type(batches).__name__}), which decides the size"
        )
    _refuse_nothing(batches.sampler, target.arguments, setting, batches.drop_last)
    return target.change(batch_sampler=BatchSampler(batches.sampler, setting, batches.drop_last))


def _refuse_nothing(sampler: Any, arguments: dict[str, Any], setting: int, drop_last: bool) -> None:
    """An epoch without any batch looks like one that went well."""
    try:
        count = len(arguments["dataset"] if sampler is None else sampler)
    except (TypeError, NotImplementedError):
        return
    if drop_last and count < setting:
        raise CannotActError(
            f"there are only {count} samples, and the last batch is dropped: none would be left"
        )
