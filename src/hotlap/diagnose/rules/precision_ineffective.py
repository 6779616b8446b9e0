"""Mixed precision is on, but the work does not get faster by it.

What it is
    Autocast converts tensors back and forth. That pays only where the hardware multiplies low precision
    faster, where the heavy matmuls really run in it, and where their sizes suit the units.
How it is recognised
    Hypothesis, which an experiment with full precision (or another memory layout) must confirm. `no-hardware`:
    autocast is on and the processor or GPU has no units for its dtype. `full-precision`: of the operators
    seen, less than half of the matmul time was in low precision. `sizes`: at least 30 % of the matmul time had
    a size that is no multiple of 8. The time attacked is forward and backward, or the matmuls concerned.
What to do
    Without the hardware, turn it off. Else look for tensors that are cast back to float32, for code outside
    the autocast block, and pad vocabulary, channels and batch to multiples of 8.
Evidence
    `precision`: asked for
    `compute_share`: forward and backward
    `reason`: no-hardware, full-precision or sizes
    `low_share`: optional, of the matmul time in low precision
"""

from __future__ import annotations

from hotlap.diagnose.compute import compute_share
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.timeline import Ops
from hotlap.ports.rule import Rule, Sight

LOW_FROM, MISALIGNED_FROM = 0.5, 0.3


class PrecisionIneffective(Rule):
    cause = Cause.PRECISION_INEFFECTIVE
    outranks = frozenset(
        {Cause.UNCOMPILED, Cause.LAUNCH_BOUND, Cause.BATCH_TOO_SMALL, Cause.OPTIMIZER_UNFUSED}
    )
    hypothesis = True

    def examine(self, sight: Sight) -> Finding | None:
        asked, model = sight.timeline.runtime.autocast, sight.timeline.model
        if not asked:
            return None
        asked, ops = asked.removeprefix("torch."), sight.timeline.ops
        reason, wasted = ("no-hardware", 1.0) if not _has_units(sight, asked) else _seen(ops)
        share = compute_share(sight)
        evidence: Evidence = {
            "precision": asked,
            "compute_share": share,
            "reason": reason,
            "low_share": ops.low_precision if ops else None,
        }
        return finding(self.cause, share * wasted, evidence, model.place if model else None)


def _has_units(sight: Sight, asked: str) -> bool:
    host, bf16 = sight.host, asked == "bfloat16"
    if sight.timeline.on_accelerator:
        return any(gpu.bf16 if bf16 else gpu.tensor_cores for gpu in host.gpus) or not host.gpus
    return bf16 and (host.cpu_bf16 or host.cpu_amx)


def _seen(ops: Ops | None) -> tuple[str, float]:
    """What the operators show, and the part of forward and backward that it concerns."""
    if ops is None or ops.matmul is None:
        return "", 0.0
    if ops.low_precision is not None and ops.low_precision < LOW_FROM:
        return "full-precision", ops.matmul * (1.0 - ops.low_precision)
    if ops.misaligned is not None and ops.misaligned >= MISALIGNED_FROM:
        return "sizes", ops.matmul * ops.misaligned
    return "", 0.0
