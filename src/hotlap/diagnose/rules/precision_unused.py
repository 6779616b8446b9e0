"""The hardware has fast low precision, and the model computes in float32.

What it is
    Tensor cores, AMX and AVX512-BF16 multiply matrices in bf16 or fp16 several times as fast as in float32,
    and half the bytes move through memory.
How it is recognised
    The model computes in float32 without autocast, on hardware that gains from less: a GPU with tensor
    cores that is busy for at least half of the time, or a CPU with AMX or AVX512-BF16. Of forward and
    backward 40 % are counted on a GPU (25 % where TF32 is on), 50 % with AMX, 25 % with AVX512-BF16: the
    low end of what is usual, times the part in matmuls where `--ops` has measured it, less the fixed cost
    of starting operators. Where float64 occurs beside float32, half of it. A CPU without such units loses
    by bf16, so nothing is said there.
What to do
    Train under autocast: bf16 where the hardware has it, else fp16 with a GradScaler.
Evidence
    `compute_share`: forward and backward
    `dtype`: of the model now
    `precision`: that the hardware has
    `hardware`: that would be used
"""

from __future__ import annotations

from hotlap.diagnose.compute import accelerates, compute_share, dispatch_of, dtypes, gpu_busy, on_cuda
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.timeline import Model
from hotlap.ports.rule import Rule, Sight

BUSY = 0.5


class PrecisionUnused(Rule):
    cause = Cause.PRECISION_UNUSED

    def examine(self, sight: Sight) -> Finding | None:
        timeline, model = sight.timeline, sight.timeline.model
        hardware = accelerates(sight.host, timeline)
        if model is None or not hardware or timeline.runtime.autocast or not _is_single(model):
            return None
        busy = gpu_busy(timeline.gauges)
        if on_cuda(timeline) and busy is not None and busy < BUSY:
            return None
        share = compute_share(sight)
        evidence: Evidence = {
            "compute_share": share,
            "dtype": "float32",
            "precision": _precision(sight),
            "hardware": hardware,
        }
        part = 0.5 if "float64" in dtypes(model) else 1.0
        return finding(self.cause, share * part * _saved(sight), evidence, model.place)


def _is_single(model: Model) -> bool:
    """Nothing in it is of half precision already. What is double, a frozen table for one, stays as it is."""
    return "float32" in dtypes(model) and set(dtypes(model)) <= {"float32", "float64"}


def _saved(sight: Sight) -> float:
    """Of forward and backward."""
    timeline, dispatch = sight.timeline, dispatch_of(sight)
    if on_cuda(timeline):
        saved = 0.25 if timeline.runtime.tf32 else 0.4
    else:
        saved = 0.5 if sight.host.cpu_amx else 0.25
        saved *= 1.0 - (dispatch.fixed if dispatch else 0.0)
    measured = timeline.ops.matmul if timeline.ops else None
    return saved * (1.0 if measured is None else measured)


def _precision(sight: Sight) -> str:
    if not on_cuda(sight.timeline):
        return "bf16"
    return "bf16" if any(gpu.bf16 for gpu in sight.host.gpus) else "fp16"
