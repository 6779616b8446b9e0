"""A switch for debugging is still on.

What it is
    Anomaly detection records a traceback for each operator and looks for NaN in each gradient; a profiler
    records each call; `CUDA_LAUNCH_BLOCKING=1` waits for each kernel; deterministic algorithms forbid the
    fast ones.
How it is recognised
    The switch was on in training. Counted are, of forward and backward: anomaly detection 60 % (steps were
    2.4 to 7 times as slow with it), a profiler 30 %, launch blocking 20 %, deterministic algorithms 3 %,
    which is a note: it may be wanted.
What to do
    Turn it off once the fault is found; turn it on for single steps only.
Evidence
    `modes`: that are on
    `compute_share`: forward and backward
"""

from __future__ import annotations

from hotlap.diagnose.compute import compute_share, on_cuda
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.ports.rule import Rule, Sight

COSTS = {"detect_anomaly": 0.6, "profiler": 0.3, "launch_blocking": 0.2, "deterministic": 0.03}
UNKNOWN_COST = 0.05
BLOCKING = "launch_blocking"  # a word to the CUDA driver, which a model on the CPU never asks


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

    def examine(self, sight: Sight) -> Finding | None:
        modes = [mode for mode in sight.timeline.runtime.debug if mode != BLOCKING or on_cuda(sight.timeline)]
        share = compute_share(sight)
        left = 1.0
        for mode in modes:
            left *= 1.0 - COSTS.get(mode, UNKNOWN_COST)
        evidence: Evidence = {"modes": ", ".join(modes), "compute_share": share}
        where = sight.timeline.runtime.debug_place
        return finding(self.cause, share * (1.0 - left), evidence, where)
