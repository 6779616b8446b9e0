"""The model computes in float64.

What it is
    NumPy makes float64 by default, and `.double()` or a float64 buffer brings it into the model. It moves
    twice the bytes and halves the vector units; most GPUs compute it at a thirty-second or less of the
    speed.
How it is recognised
    Parameters or buffers of the model are float64. Of forward and backward one half is counted on a CPU
    (float64 was 1.9 to 6.8 times as slow there), 70 % on a GPU, less the fixed cost of starting operators;
    half of that where other dtypes occur beside it.
What to do
    Convert the data once (`astype(np.float32)`) and drop `.double()`, or let `single-precision` do so.
Evidence
    `compute_share`: forward and backward
    `dtypes`: of the model
"""

from __future__ import annotations

from hotlap.diagnose.compute import compute_share, dispatch_of, dtypes, on_cuda
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.ports.rule import Rule, Sight

SAVED_ON_CPU, SAVED_ON_CUDA = 0.5, 0.7
FLOATS = {"float64", "float32", "float16", "bfloat16"}


class Float64Compute(Rule):
    cause = Cause.FLOAT64_COMPUTE
    outranks = frozenset(
        {Cause.PRECISION_UNUSED, Cause.UNCOMPILED, Cause.LAUNCH_BOUND, Cause.BATCH_TOO_SMALL}
    )

    def examine(self, sight: Sight) -> Finding | None:
        model = sight.timeline.model
        floats = FLOATS.intersection(dtypes(model)) if model else set()
        if model is None or "float64" not in floats:
            return None
        dispatch = dispatch_of(sight)
        saved = SAVED_ON_CUDA if on_cuda(sight.timeline) else SAVED_ON_CPU
        saved *= (1.0 - dispatch.fixed) if dispatch else 1.0
        share = compute_share(sight)
        evidence: Evidence = {"compute_share": share, "dtypes": ", ".join(sorted(floats))}
        return finding(self.cause, share * saved / (2 if len(floats) > 1 else 1), evidence, model.place)
