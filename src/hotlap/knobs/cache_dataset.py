"""Make every item once, and serve it from memory after that.

What it does
    Proves on samples that items come out bit for bit the same (fetched again in another order, under other random
    states, in another process, and from a copy of the dataset that was told of another epoch) and that they draw no
    random numbers; then makes all of them, in parallel, before the first batch. `memory` keeps them for this run;
    `file` under `.hotlap/cache/` (or HOTLAP_CACHE), for later runs and for all ranks, under a fingerprint of the
    dataset's code, parameters and files. Windows that overlap are kept once. Random transforms that a dataset applies
    last stay live. What items depend on is compared while it serves, and items are fetched again at random moments:
    a dataset that the script changes later ends the cache.
When it helps
    Items cost CPU time or waiting, and are made again in every epoch. With everything in memory, workers cost more
    than they bring: let the plan have `num-workers: 0`, and `batched-fetch` beside it.
What it costs
    The time of about one epoch of items at the start, spread over all cores, and their size in memory (a quarter of
    what is free stays free) or on the disk. `memory` is needed once for each rank.
Numerics
    None: each item is equal to the one that the dataset makes, in the same order. Where it cannot be known all that
    items depend on, `audited`: watched while it trains, not proved.
"""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hotlap.cost.reading import fit, free_bytes, training_loader
from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Loader, Seam, Undo
from hotlap.ports.values import Choice


class CacheDataset(Knob):
    id = "cache-dataset"
    relieves = frozenset(
        {Cause.REPEATED_WORK, Cause.ITEM_CPU_BOUND, Cause.ITEM_IO_BOUND, Cause.INPUT_STARVED}
    )
    seam = Seam.LOADER
    numerics = Numerics.BITWISE
    values = Choice(("memory", "file", "off"))
    promise = (3.0, 7.0)
    brings = MappingProxyType({"batched-fetch": True})

    def settings(self, host: Host, timeline: Timeline) -> tuple[str, ...]:
        found = training_loader(timeline)
        if found is None or found[1].iterable:
            return ()
        dataset = found[1].dataset
        if not dataset.length or dataset.item_bytes is None:
            return ("memory",)  # `apply` finds out whether it fits
        held = fit(dataset.length * timeline.world, dataset.item_bytes, free_bytes(timeline, host))
        return (
            ("memory", "file")
            if held.fits and timeline.world > 1
            else ("memory",)
            if held.fits
            else ("file",)
        )

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        """All of the exposed time of data."""
        found = training_loader(timeline)
        return 0.0 if found is None or found[1].iterable else summarise(timeline).share(Stage.DATA)

    def apply(self, target: Loader, setting: str) -> Undo:
        if setting == "off":
            return target.change()
        from hotlap.data.cache.materialise import check, materialise
        from hotlap.data.cache.messages import CannotCacheError

        _require_single_items(target.arguments)
        _require_no_type_compared()
        dataset, collate = target.arguments["dataset"], _collate(target.arguments)
        try:
            if target.asking:
                check(dataset, collate)
                target.context[self.id] = setting
                return target.change()
            return target.change(dataset=materialise(dataset, setting, collate))
        except CannotCacheError as refusal:
            raise CannotActError(refusal.what) from refusal

    def numerics_at(self, target: Loader, setting: str) -> Numerics:
        """Once it acts: what items can depend on is known in full, or the audit alone watches over the rest."""
        from hotlap.data.cache.served import watched_in_part

        return Numerics.AUDITED if watched_in_part(target.arguments["dataset"]) else Numerics.BITWISE


def _collate(arguments: dict[str, Any]) -> Any:
    """None where the script gets single items."""
    from torch.utils.data import default_collate

    batched = arguments.get("batch_size") is not None or arguments.get("batch_sampler") is not None
    return arguments.get("collate_fn") or (default_collate if batched else None)


def _require_single_items(arguments: dict[str, Any]) -> None:
    """Without a batch size the sampler may ask for anything, such as many items by one list."""
    from torch.utils.data import RandomSampler, SequentialSampler

    asked = arguments.get("sampler")
    alone = arguments.get("batch_size") is None and arguments.get("batch_sampler") is None
    if alone and asked is not None and type(asked) not in (RandomSampler, SequentialSampler):
        raise CannotActError(
            f"the script makes its batches by itself (batch_size=None with {type(asked).__name__})"
        )


def _require_no_type_compared() -> None:
    """What serves the items is of a subclass: `isinstance` knows it, `type(loader.dataset) is Rows` does not."""
    from hotlap.probe.usercode import UserCode
    from hotlap.sameness.names import compares_type_of

    user = UserCode()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and user.owns_file(file):
            line = compares_type_of("dataset", "".join(linecache.getlines(file)))
            if line is not None:
                raise CannotActError(f"{Path(file).name}:{line} compares the type of a loader's dataset")
