"""Starting operators takes longer than computing them.

What it is
    Each operator costs a fixed time before it computes anything: Python, dispatch, autograd, a kernel
    launch. A model of many small layers, or a loop in Python over time steps, pays that hundreds of times a
    step. Where a loop in `forward` holds most of its time, the finding names the loop's hottest line.
How it is recognised
    Hypothesis, which an experiment with the compiler or with a larger batch must confirm. On the CPU: a call of
    a leaf module takes so little time, forward and backward together, that starting its operators, which the probe
    measured on this machine, is at least 30 % of it. On a GPU: the GPU is idle although the host is in
    forward and backward. Silent for a compiled model.
What to do
    Compile the model (on a GPU with CUDA graphs: `mode="reduce-overhead"`), replace loops over time steps
    by batched operators, merge small layers.
Evidence
    `calls`: of leaf modules a step
    `call_us`: forward and backward for each call
    `overhead_us`: of it that is not arithmetic
    `gpu_share`: optional, busy share of the GPU
"""

from __future__ import annotations

from hotlap.diagnose.compute import Dispatch, compute_share, device_busy, dispatch_of, loop_line
from hotlap.diagnose.inputs import line_place
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.ports.rule import Rule, Sight

NOTICED = 0.3  # of a call: below this, removing all of it would not be felt beside the arithmetic


class LaunchBound(Rule):
    cause = Cause.LAUNCH_BOUND
    refines = Cause.UNCOMPILED
    outranks = frozenset({Cause.UNCOMPILED})
    hypothesis = True

    def examine(self, sight: Sight) -> Finding | None:
        dispatch, model = dispatch_of(sight), sight.timeline.model
        if dispatch is None or model is None:
            return None
        busy = device_busy(sight.timeline) if sight.timeline.on_accelerator else None
        part = _fixed(sight, dispatch, busy)
        if part < NOTICED:
            return None
        evidence: Evidence = {
            "calls": dispatch.calls,
            "call_us": dispatch.call_us,
            "overhead_us": dispatch.call_us * part,
            "gpu_share": busy,
        }
        where = line_place(loop_line(sight.timeline), model.place)
        return finding(self.cause, part * compute_share(sight), evidence, where)


def _fixed(sight: Sight, dispatch: Dispatch, busy: float | None) -> float:
    """The part of forward and backward in which nothing is computed."""
    if not sight.timeline.on_accelerator:
        return dispatch.fixed
    share = compute_share(sight)
    return max(0.0, share - busy) / share if busy is not None and share > 0 else 0.0
