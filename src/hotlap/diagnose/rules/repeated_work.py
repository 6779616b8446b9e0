"""The same items are computed again in every epoch, although they would fit into memory.

What it is
    Items come out bit for bit the same each time, so that every epoch after the first repeats the work of
    the first.
How it is recognised
    Sample items were fetched twice under different random states and were equal, also those of a copy that
    was told of another epoch where the dataset knows of epochs (`set_epoch`); all items together fit
    into free memory with a quarter of it to spare; and fetching items is at least 2 % of the step on the
    critical path. The share is that of fetching, less what copying from memory takes, and less the first
    epoch, which has to be paid once: two of three epochs seen give two thirds. Where only one epoch was
    seen, half is counted, since hotlap cannot know how many will follow.
What to do
    Keep the items in memory after the first epoch, or prepare them once before training.
Evidence
    `epochs`: seen
    `items`: in the dataset
    `item_ms`: wall time of one item
    `dataset_mib`: all items in memory
    `free_mib`: memory that is free
"""

from __future__ import annotations

from hotlap.cost.memory import Fit, fit, free_bytes
from hotlap.cost.pipeline import Load, cached
from hotlap.diagnose.inputs import input_of
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.timeline import Dataset
from hotlap.ports.rule import Rule, Sight


class RepeatedWork(Rule):
    cause = Cause.REPEATED_WORK
    refines = Cause.INPUT_STARVED
    # Memory is quicker than any way of reading that more workers or larger files could offer.
    outranks = frozenset({Cause.ITEM_IO_BOUND})

    def examine(self, sight: Sight) -> Finding | None:
        seen = input_of(sight)
        if seen is None or seen.loader.iterable:
            return None
        dataset = seen.loader.dataset
        held = _held(dataset, free_bytes(sight.timeline, sight.host))
        if held is None or not held.fits:
            return None
        epochs = max(1, seen.loader.epochs)
        repeated = (epochs - 1) / epochs if epochs > 1 else 0.5
        evidence: Evidence = {
            "epochs": epochs,
            "items": dataset.length,
            "item_ms": seen.item_ms,
            "dataset_mib": held.needed / 2**20,
            "free_mib": held.free / 2**20,
        }
        share = (seen.cpu + seen.wait) * repeated * _saved(seen.load)
        return finding(self.cause, share, evidence, dataset.place)


def _saved(load: Load) -> float:
    """Of fetching: an item in memory still has to be copied, and some datasets do no more than that."""
    now = load.work.cpu_s + load.work.wait_s
    return max(0.0, 1.0 - cached(load).work.cpu_s / now) if now > 0 else 0.0


def _held(dataset: Dataset, free: int) -> Fit | None:
    if not dataset.deterministic or not dataset.length or not dataset.item_bytes:
        return None
    return fit(dataset.length, dataset.item_bytes, free)
