"""Let hotlap's own loader fetch the batches: no workers, or worker processes with a ring of shared memory.

What it does
    The script's DataLoader stays what it is, with its sampler and its collate; only where the next batch comes from
    changes. hotlap measures what batches cost and how long the training waits, and chooses between the training's own
    thread and worker processes, their number, and how far they run ahead, while it runs. Batches are collated straight
    into shared memory that is used again and again. A worker that dies is replaced.
When it helps
    The step waits for data, and it is not clear how many workers suit; or batches are large, so that handing them over
    costs more than fetching them.
What it costs
    Memory for the batches under way, at most a quarter of what is free. Where the script changes its dataset in the
    middle of an epoch, the training process fetches from there on.
Numerics
    None: it acts only on a map-style dataset whose items, collate function and sampler were seen to draw and keep
    nothing, and came out the same, bit for bit, in two processes with different seeds. Where not all items could be
    looked at, or not all that they depend on, the class is audited: a batch is made again at random moments.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any

from hotlap.cost.reading import training_loader
from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.timeline import Timeline
from hotlap.ports.knob import WORKERS_RELIEVE, CannotActError, DataKnob, Numerics
from hotlap.ports.target import Loader, Seam, Undo, together
from hotlap.ports.values import Flag

PROVED = 4  # items of the batch that is fetched twice


class LoaderKnob(DataKnob):
    id = "loader"
    relieves = WORKERS_RELIEVE | {Cause.PREFETCH_SHALLOW}
    seam = Seam.LOADER
    numerics = Numerics.BITWISE
    values = Flag()
    excludes = frozenset({"num-workers", "prefetch-factor"})  # it chooses them
    follows = frozenset({"cache-dataset", "batched-fetch", "bucketing", "max-length", "trim-padding"})

    def settings(self, host: Host, timeline: Timeline) -> tuple[bool, ...]:
        found = training_loader(timeline)
        if found is None or found[1].iterable or found[1].dataset.draws_random or host.system != "Linux":
            return ()
        return (True,)

    def apply(self, target: Loader, setting: bool) -> Undo:
        if not setting:
            return target.change()
        hindrance = _hindrance(target) or _unproved(target)
        if hindrance:
            raise CannotActError(hindrance)
        undos: list[Undo] = []

        def take(loader: Any) -> None:
            from hotlap.data.loader_takeover import take_over

            seen = target.context.get("seen")
            volatile = seen().volatile if seen is not None else ()
            undos.append(take_over(loader, volatile, partial(target.lower, self.id)))

        target.after.append(take)
        undos.append(lambda: target.after.remove(take) if take in target.after else None)
        return lambda: together(undos)()

    def numerics_at(self, target: Loader, setting: bool) -> Numerics:
        return Numerics.AUDITED if setting and target.unproved() else Numerics.BITWISE


def _hindrance(target: Loader) -> str:
    arguments = target.arguments
    if target.iterable:
        return "its dataset is a stream: which samples come depends on the number of workers"
    if not arguments.get("in_order", True):
        return "the script takes batches out of order (in_order=False)"
    if reason := target.draws() or target.lazy():
        return reason
    seen = target.context.get("seen")
    if seen is not None and seen().twice:
        return "its batches hold the same memory twice, which the loop may write to"
    return ""


def _unproved(target: Loader) -> str:
    """A batch, collated as the script does it, must be the same wherever and whenever it is fetched."""
    from torch.utils.data import default_collate, default_convert
    from torch.utils.data.datapipes.datapipe import MapDataPipe

    from hotlap.data.loader_fetch import FetchSpec
    from hotlap.data.loader_takeover import not_the_same

    arguments = target.arguments
    dataset = arguments["dataset"]
    if isinstance(dataset, MapDataPipe):
        return "its dataset is a pipe of torch's, which torch's own loader takes care of"
    batched = arguments.get("batch_size") is not None or arguments.get("batch_sampler") is not None
    collate = arguments.get("collate_fn") or (default_collate if batched else default_convert)
    keys = _some_keys(target)
    if not keys:
        return "it has no items"
    return not_the_same(FetchSpec(dataset, False, batched, collate, False), keys)


def _some_keys(target: Loader) -> list[Any]:
    """A sampler is not touched: asking it would draw. Numbers are what all but a few datasets are asked by."""
    return list(islice(range(len(target.arguments["dataset"])), PROVED))
