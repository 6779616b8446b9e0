"""Multiply float32 matrices on a GPU's tensor cores.

What it does
    Allows TF32 for matrix products (`set_float32_matmul_precision("high")`) and for cuDNN's convolutions.
When it helps
    Training in float32 on an NVIDIA GPU since Ampere, where forward and backward hold the step.
What it costs
    13 of the 23 binary digits of the factors; sums are still float32.
Numerics
    Rounding: factors have 10 binary digits. Models that train in 16 bits train in this as well.
"""

from __future__ import annotations

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Process, Seam, Undo
from hotlap.ports.values import Flag


class Tf32(Knob):
    id = "tf32"
    relieves = frozenset({Cause.PRECISION_UNUSED})
    seam = Seam.PROCESS
    numerics = Numerics.ROUNDING
    values = Flag()
    live = True

    def settings(self, host: Host, timeline: Timeline) -> tuple[bool, ...]:
        has = timeline.on_cuda and any(gpu.tf32 for gpu in host.gpus)
        return (True,) if has and not timeline.runtime.tf32 else ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return summarise(timeline).share(Stage.FORWARD, Stage.BACKWARD)

    def apply(self, target: Process, setting: bool) -> Undo:
        import torch

        if not torch.cuda.is_available():
            raise CannotActError("torch sees no CUDA device here")
        try:
            before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        except RuntimeError as mixed:  # torch refuses to answer for switches that differ from each other
            raise CannotActError("the script sets fp32_precision of single backends itself") from mixed
        torch.set_float32_matmul_precision("high" if setting else "highest")
        torch.backends.cudnn.allow_tf32 = setting

        def undo() -> None:
            torch.set_float32_matmul_precision(before[0])
            torch.backends.cudnn.allow_tf32 = before[1]

        return undo
