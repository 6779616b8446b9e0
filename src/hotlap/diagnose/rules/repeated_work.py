"""The same items are computed again in every epoch, although they would fit into memory.

What it is
    Items come out bit for bit the same each time, so that every epoch after the first repeats the work of
    the first.
How it is recognised
    Hypothesis: sample items were fetched twice under different random states and were equal, also those of a copy that
    was told of another epoch where the dataset knows of epochs (`set_epoch`); all items together fit
    into free memory with a quarter of it to spare; fetching items is at least 2 % of the step on the critical
    path; and at least three quarters of the items that were seen had been made before: four epochs. It becomes a
    finding when an experiment with a cached sample of the data wins. With fewer epochs that experiment is
    listed under the cause that explains why items are slow.
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

from hotlap.cost.reading import Fit, fit, free_bytes
from hotlap.diagnose.inputs import input_of
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.timeline import DatasetFacts
from hotlap.ports.rule import Rule, Sight

REPEATED_EPOCHS = 4  # seen: from here on three of four items were made before


class RepeatedWork(Rule):
    cause = Cause.REPEATED_WORK
    refines = Cause.INPUT_STARVED
    # Items that were made before need neither be quicker nor be made by more workers.
    outranks = frozenset(
        {
            Cause.INPUT_STARVED,
            Cause.ITEM_CPU_BOUND,
            Cause.ITEM_IO_BOUND,
            Cause.COLLATE_BOUND,
            Cause.WORKERS_TOO_FEW,
        }
    )
    hypothesis = True

    def examine(self, sight: Sight) -> Finding | None:
        seen = input_of(sight)
        if seen is None or seen.loader.iterable or seen.loader.epochs < REPEATED_EPOCHS:
            return None
        dataset = seen.loader.dataset
        held = _held(dataset, free_bytes(sight.timeline, sight.host))
        if held is None or not held.fits:
            return None
        evidence: Evidence = {
            "epochs": seen.loader.epochs,
            "items": dataset.length,
            "item_ms": seen.item_ms,
            "dataset_mib": held.needed / 2**20,
            "free_mib": held.free / 2**20,
        }
        return finding(self.cause, seen.cpu + seen.wait, evidence, dataset.place)


def _held(dataset: DatasetFacts, free: int) -> Fit | None:
    if not dataset.deterministic or not dataset.length or not dataset.item_bytes:
        return None
    return fit(dataset.length, dataset.item_bytes, free)
