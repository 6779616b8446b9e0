"""The hardware has fast low precision, and the model computes in float32.

What it is
    Tensor cores, AMX and AVX512-BF16 multiply matrices in bf16 or fp16 several times as fast as in float32,
    and half the bytes move through memory.
How it is recognised
    Hypothesis: the model computes in float32 without autocast, on hardware with units for less: a GPU with
    tensor cores, or a CPU with AMX or AVX512-BF16. It becomes a finding when an experiment with lower precision
    wins: on many jobs it does not. The time attacked is forward and backward.
What to do
    Train under autocast: bf16 where the hardware has it, else fp16 with a GradScaler.
Evidence
    `compute_share`: forward and backward
    `dtype`: of the model now
    `precision`: that the hardware has
    `hardware`: that would be used
"""

from __future__ import annotations

from hotlap.diagnose.compute import accelerates, compute_share, dtypes
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.timeline import ModelFacts
from hotlap.ports.rule import Rule, Sight


class PrecisionUnused(Rule):
    cause = Cause.PRECISION_UNUSED
    hypothesis = True

    def examine(self, sight: Sight) -> Finding | None:
        timeline, model = sight.timeline, sight.timeline.model
        hardware = accelerates(sight.host, timeline)
        if model is None or not hardware or timeline.runtime.autocast or not _is_single(model):
            return None
        share = compute_share(sight)
        evidence: Evidence = {
            "compute_share": share,
            "dtype": "float32",
            "precision": _precision(sight),
            "hardware": hardware,
        }
        return finding(self.cause, share, evidence, model.place)


def _is_single(model: ModelFacts) -> bool:
    """Nothing in it is of half precision already. What is double, a frozen table for one, stays as it is."""
    return "float32" in dtypes(model) and set(dtypes(model)) <= {"float32", "float64"}


def _precision(sight: Sight) -> str:
    if not sight.timeline.on_accelerator:
        return "bf16"
    return "bf16" if any(gpu.bf16 for gpu in sight.host.gpus) else "fp16"
