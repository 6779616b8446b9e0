"""The model runs operator by operator where a compiler would fuse them.

What it is
    Each activation, norm or sum reads its input from memory and writes its output back. `torch.compile`
    fuses neighbours, so that the data passes through memory once. Large matmuls and convolutions gain
    little.
How it is recognised
    Hypothesis: the model is not compiled and a compiler is there. It becomes a finding when an experiment with
    the compiled model wins. The time attacked is forward and backward.
What to do
    Compile the model. The first steps then take longer, and inputs of ever new shapes compile again: pad
    them to a few sizes.
Evidence
    `compute_share`: forward and backward
    `calls`: of leaf modules a step
    `pointwise_share`: optional, of the operators' time that a compiler fuses
"""

from __future__ import annotations

from hotlap.diagnose.compute import compute_share
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.host import Host
from hotlap.ports.rule import Rule, Sight


class Uncompiled(Rule):
    cause = Cause.UNCOMPILED
    hypothesis = True

    def examine(self, sight: Sight) -> Finding | None:
        model, ops = sight.timeline.model, sight.timeline.ops
        if model is None or model.compiled or not _can_compile(sight.host):
            return None
        share = compute_share(sight)
        evidence: Evidence = {
            "compute_share": share,
            "calls": model.calls_per_step or 0.0,
            "pointwise_share": ops.pointwise if ops else None,
        }
        return finding(self.cause, share, evidence, model.place)


def _can_compile(host: Host) -> bool:
    return host.compiler is not None and host.python_headers is not False
