"""Let cuDNN try its convolutions and keep the fastest.

What it does
    Sets `torch.backends.cudnn.benchmark`: for each new size of input every algorithm is timed once.
When it helps
    Convolutions on inputs of a few fixed sizes, on a GPU.
What it costs
    The first step of each size is slow: with ever new sizes it costs more than it brings. The fastest algorithm may
    need more memory.
Numerics
    Another algorithm rounds in another way, and which one wins may differ from run to run.
"""

from __future__ import annotations

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Process, Seam, Undo
from hotlap.ports.values import Flag

_CONVOLUTIONS = ("conv", "cudnn")


class CudnnBenchmark(Knob):
    id = "cudnn-benchmark"
    relieves = frozenset({Cause.PRECISION_UNUSED})
    seam = Seam.PROCESS
    numerics = Numerics.ROUNDING
    values = Flag()
    live = True

    def settings(self, host: Host, timeline: Timeline) -> tuple[bool, ...]:
        if not timeline.on_cuda or timeline.runtime.cudnn_benchmark:
            return ()
        tops = timeline.ops.top if timeline.ops else ()
        seen = any(name in each.name for each in tops for name in _CONVOLUTIONS)
        return (True,) if seen or not tops else ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return summarise(timeline).share(Stage.FORWARD, Stage.BACKWARD)

    def apply(self, target: Process, setting: bool) -> Undo:
        import torch

        if not torch.cuda.is_available():
            raise CannotActError("torch sees no CUDA device here")
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = setting

        def undo() -> None:
            torch.backends.cudnn.benchmark = before

        return undo
