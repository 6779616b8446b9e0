"""Put a batch together by one gather for each tensor, instead of item by item.

What it does
    Where the items are in memory (`cache-dataset`, or a TensorDataset), copies all rows of a batch at once, in the
    order of the loader's own sampler, with one thread. It replaces torch's own collate, after a proof on samples that
    batches are equal in types, dtypes, shapes, strides and bits. A collate of the script's own needs single items,
    which `cache-dataset` fetches at once already: then there is nothing left to do here.
When it helps
    Items are small and cheap, so that Python and collating are what a batch costs.
What it costs
    Nothing beyond the cache. Workers only stand in its way: handing a batch over costs more than to gather it, so the
    plan should have `num-workers: 0`.
Numerics
    None: the same batches, bit for bit. Where `cache-dataset` can only be audited, its batches are as well.
"""

from __future__ import annotations

from typing import Any

from hotlap.cost.reading import TORCHS_COLLATE, training_loader
from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.timeline import Timeline
from hotlap.ports.knob import CannotActError, DataKnob, Numerics
from hotlap.ports.target import Loader, Seam, Undo
from hotlap.ports.values import Flag


class BatchedFetch(DataKnob):
    id = "batched-fetch"
    relieves = frozenset({Cause.COLLATE_BOUND, Cause.ITEM_CPU_BOUND, Cause.INPUT_STARVED})
    seam = Seam.LOADER
    numerics = Numerics.BITWISE
    values = Flag()
    follows = frozenset({"cache-dataset"})

    def settings(self, host: Host, timeline: Timeline) -> tuple[bool, ...]:
        found = training_loader(timeline)
        if found is None or found[1].iterable or found[1].collate not in ("", TORCHS_COLLATE):
            return ()
        return (True,)

    def apply(self, target: Loader, setting: bool) -> Undo:
        if not setting:
            return target.change()
        from torch.utils.data import default_collate

        from hotlap.data.cache.messages import CannotCacheError
        from hotlap.data.cache.served import WholeBatch, at_once, kept_of, require_gather

        collate = target.arguments.get("collate_fn")
        if isinstance(collate, WholeBatch):
            return target.change()
        if target.arguments.get("batch_size") is None and target.arguments.get("batch_sampler") is None:
            raise CannotActError("the script makes its batches by itself (batch_size=None)")
        if collate not in (None, default_collate):
            name = getattr(collate, "__name__", type(collate).__name__)
            raise CannotActError(f"the script's own collate ({name}) needs single items")
        if target.asking and "cache-dataset" in target.context:
            return target.change()
        try:
            served = _in_memory(target)
            kept = kept_of(served)
            assert kept is not None
            require_gather(kept.store)
        except CannotCacheError as refusal:
            raise CannotActError(refusal.what) from refusal
        return target.change(dataset=at_once(served), collate_fn=WholeBatch(default_collate, kept.store))

    def numerics_at(self, target: Loader, setting: bool) -> Numerics:
        from hotlap.data.cache.served import watched_in_part

        return Numerics.AUDITED if watched_in_part(target.arguments["dataset"]) else Numerics.BITWISE


def _in_memory(target: Loader) -> Any:
    """The dataset, served; only where that takes no time."""
    from hotlap.data.cache.materialise import serve_tensors
    from hotlap.data.cache.served import kept_of

    dataset = target.arguments["dataset"]
    if kept_of(dataset) is not None:
        return dataset
    served = serve_tensors(dataset)
    if served is None:
        raise CannotActError("its items are not in memory: add `cache-dataset` to the plan")
    return served
