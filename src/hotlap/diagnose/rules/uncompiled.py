"""The model runs operator by operator where a compiler would fuse them.

What it is
    Each activation, norm or sum reads its input from memory and writes its output back. `torch.compile`
    fuses neighbours, so that the data passes through memory once. Large matmuls and convolutions gain
    little.
How it is recognised
    The model is not compiled and a compiler is there. Under `--ops` the share of fusable operators was
    measured: half of their time is counted, as fusing two passes into one leaves one. Without it, a model
    on a GPU gets a note at most; on a CPU nothing is said.
What to do
    Compile the model. The first steps then take longer, and inputs of ever new shapes compile again: pad
    them to a few sizes.
Evidence
    `compute_share`: forward and backward
    `calls`: of leaf modules a step
    `pointwise_share`: optional, of the operators' time that a compiler fuses
"""

from __future__ import annotations

from hotlap.diagnose.compute import compute_share, on_cuda
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding, Severity
from hotlap.facts.host import Host
from hotlap.ports.rule import Rule, Sight

FUSED_AWAY = 0.5
UNMEASURED = (
    0.1  # of forward and backward, on a GPU: what a typical network has in pointwise operators, halved
)


class Uncompiled(Rule):
    cause = Cause.UNCOMPILED

    def examine(self, sight: Sight) -> Finding | None:
        model, ops = sight.timeline.model, sight.timeline.ops
        if model is None or model.compiled or not _can_compile(sight.host):
            return None
        pointwise = ops.pointwise if ops else None
        if pointwise is None and not on_cuda(sight.timeline):
            return None
        saved = UNMEASURED if pointwise is None else FUSED_AWAY * pointwise
        share = compute_share(sight)
        evidence: Evidence = {
            "compute_share": share,
            "calls": model.calls_per_step or 0.0,
            "pointwise_share": pointwise,
        }
        at_most = Severity.NOTE if pointwise is None else Severity.CRITICAL
        return finding(self.cause, share * saved, evidence, model.place, at_most)


def _can_compile(host: Host) -> bool:
    return host.compiler is not None and host.python_headers is not False
