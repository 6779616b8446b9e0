"""The model computes in float64.

What it is
    NumPy makes float64 by default, and `.double()` or a float64 buffer brings it into the model. It moves
    twice the bytes and halves the vector units; most GPUs compute it at a thirty-second or less of the
    speed.
How it is recognised
    Hypothesis: parameters or buffers of the model are float64. It becomes a finding when an experiment in single
    precision wins. The time attacked is forward and backward.
What to do
    Convert the data once (`astype(np.float32)`) and drop `.double()`, or let `single-precision` do so.
Evidence
    `compute_share`: forward and backward
    `dtypes`: of the model
"""

from __future__ import annotations

from hotlap.diagnose.compute import compute_share, dtypes
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.ports.rule import Rule, Sight

FLOATS = {"float64", "float32", "float16", "bfloat16"}


class Float64Compute(Rule):
    cause = Cause.FLOAT64_COMPUTE
    outranks = frozenset(
        {Cause.PRECISION_UNUSED, Cause.UNCOMPILED, Cause.LAUNCH_BOUND, Cause.BATCH_TOO_SMALL}
    )
    hypothesis = True

    def examine(self, sight: Sight) -> Finding | None:
        model = sight.timeline.model
        floats = FLOATS.intersection(dtypes(model)) if model else set()
        if model is None or "float64" not in floats:
            return None
        share = compute_share(sight)
        evidence: Evidence = {"compute_share": share, "dtypes": ", ".join(sorted(floats))}
        return finding(self.cause, share, evidence, model.place)
