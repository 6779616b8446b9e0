"""The compiled model is compiled again and again.

What it is
    `torch.compile` guards on shapes, dtypes, strides and Python values. When one of them changes, it
    compiles once more, which takes seconds; after eight times it gives up and runs the model uncompiled.
How it is recognised
    Recompilations were seen, and their part of all compile time is at least 2 % of the time that was seen.
    Eight or more are reported whatever they took, because the compiler gives up there.
What to do
    Read the reason: pad inputs to a few sizes, mark a dimension as dynamic, drop the last short batch, and
    keep Python numbers that change (a step count, a weight) out of `forward` or in tensors.
Evidence
    `recompiles`: seen
    `compile_s`: all compilations
    `reason`: the most frequent
"""

from __future__ import annotations

from collections import Counter

from hotlap.diagnose.severity import NOTE_FROM, Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.ports.rule import Rule, Sight

GIVES_UP = 8


class Recompiling(Rule):
    cause = Cause.RECOMPILING
    outranks = frozenset({Cause.STEP_OUTLIERS, Cause.UNCOMPILED, Cause.LAUNCH_BOUND})

    def examine(self, sight: Sight) -> Finding | None:
        reasons, warmup = sight.timeline.runtime.recompiles, sight.timeline.warmup
        seconds = warmup.seconds + sight.summary.seconds
        if not reasons or not sight.summary.n:
            return None
        part = min(1.0, len(reasons) / max(1, warmup.compiles))
        evidence: Evidence = {
            "recompiles": len(reasons),
            "compile_s": warmup.compile_s,
            "reason": Counter(reasons).most_common(1)[0][0],
        }
        model = sight.timeline.model
        share = min(1.0, warmup.compile_s * part / seconds)
        floor = NOTE_FROM if len(reasons) >= GIVES_UP else 0.0
        return finding(self.cause, max(share, floor), evidence, model.place if model else None)
