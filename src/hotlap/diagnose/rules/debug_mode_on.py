"""A switch for debugging is still on.

What it is
    Anomaly detection records a traceback for each operator and looks for NaN in each gradient; a profiler
    records each call; `CUDA_LAUNCH_BLOCKING=1` waits for each kernel; deterministic algorithms forbid the
    fast ones.
How it is recognised
    Hypothesis: the switch was on in training. It becomes a finding when an experiment with it off wins:
    deterministic algorithms, for one, may be wanted and cost nothing. The time attacked is forward and backward.
What to do
    Turn it off once the fault is found; turn it on for single steps only.
Evidence
    `modes`: that are on
    `compute_share`: forward and backward
"""

from __future__ import annotations

from hotlap.diagnose.compute import compute_share
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.ports.rule import Rule, Sight

BLOCKING = "launch_blocking"  # a word to the device's driver, which a model on the CPU never asks


class DebugModeOn(Rule):
    cause = Cause.DEBUG_MODE_ON
    # It inflates what these measure.
    outranks = frozenset(
        {
            Cause.LAUNCH_BOUND,
            Cause.BATCH_TOO_SMALL,
            Cause.UNCOMPILED,
            Cause.OPTIMIZER_UNFUSED,
            Cause.FLOAT64_COMPUTE,
            Cause.PRECISION_UNUSED,
        }
    )
    hypothesis = True

    def examine(self, sight: Sight) -> Finding | None:
        modes = [
            mode for mode in sight.timeline.runtime.debug if mode != BLOCKING or sight.timeline.on_accelerator
        ]
        share = compute_share(sight)
        if not modes:
            return None
        evidence: Evidence = {"modes": ", ".join(modes), "compute_share": share}
        where = sight.timeline.runtime.debug_place
        return finding(self.cause, share, evidence, where)
