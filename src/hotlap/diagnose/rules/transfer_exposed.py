"""The step waits while its batch is copied to the device or converted.

What it is
    `.to(device)` from pageable memory blocks until the copy is done. From pinned memory and with
    `non_blocking=True` it runs beside the computation. Conversions of the whole batch in the loop
    (`.float()`, `.to(dtype)`) count here as well.
How it is recognised
    The exposed time of `transfer` is at least 2 % of a steady step.
What to do
    Build the DataLoader with `pin_memory=True` and copy with `non_blocking=True`; send small dtypes (uint8,
    float16) and convert on the device; let the workers do conversions that stay on the CPU.
Evidence
    `transfer_ms`: a step
    `pinned`: yes, no or unknown
    `batch_mib`: optional, size of a batch
"""

from __future__ import annotations

from hotlap.cost.reading import training_loader
from hotlap.diagnose.inputs import line_place, top_line
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.timeline import LoaderFacts, Stage
from hotlap.ports.rule import Rule, Sight


class TransferExposed(Rule):
    cause = Cause.TRANSFER_EXPOSED

    def examine(self, sight: Sight) -> Finding | None:
        found = training_loader(sight.timeline)
        loader = found[1] if found else None
        evidence: Evidence = {
            "transfer_ms": sight.summary.ms(Stage.TRANSFER),
            "pinned": _pinned(loader),
            "batch_mib": loader.batch_bytes / 2**20 if loader and loader.batch_bytes else None,
        }
        line = top_line(sight.timeline, Stage.TRANSFER)
        where = line_place(line, loader.place if loader else None)
        return finding(self.cause, sight.summary.share(Stage.TRANSFER), evidence, where)


def _pinned(loader: LoaderFacts | None) -> str:
    if loader is None:
        return "unknown"
    return "yes" if loader.pin_memory else "no"
