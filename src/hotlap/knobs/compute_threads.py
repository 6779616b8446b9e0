"""Compute with this many threads.

What it does
    Sets the threads that an operator of torch is split among (`torch.set_num_threads`) in the training process, also
    where the script sets another number later. Loaders' workers keep their own.
When it helps
    On a CPU. Fewer: operators so small that handing parts of them to threads takes longer than to compute them, or
    threads that wait for cores that workers and other processes hold. More: a launcher left one thread to each
    process (`torchrun` does), and cores are idle.
What it costs
    Fewer threads make large operators slower. A compiled model is compiled anew for each number of threads.
Numerics
    Rounding: a sum or a mean over a large tensor is added up in as many parts as there are threads. Matrix products,
    norms and softmax were seen to give the same bits with one and two.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import Knob, Numerics
from hotlap.ports.target import Process, Seam, Undo
from hotlap.ports.values import Whole


class ComputeThreads(Knob):
    id = "compute-threads"
    relieves = frozenset({Cause.WORKERS_TOO_MANY, Cause.LAUNCH_BOUND})
    seam = Seam.PROCESS
    numerics = Numerics.ROUNDING
    values = Whole(1, 1024)
    live = True

    def settings(self, host: Host, timeline: Timeline) -> tuple[int, ...]:
        """One, half of the cores and all of them; ranks on one machine share its cores."""
        if timeline.on_accelerator:
            return ()
        cores = max(1, host.cores // max(1, timeline.world))
        wanted = {1, max(1, cores // 2), cores} - {timeline.runtime.threads}
        return tuple(sorted(wanted))

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        if not self.settings(host, timeline):
            return 0.0
        return summarise(timeline).share(Stage.FORWARD, Stage.BACKWARD, Stage.OPTIMIZER)

    def apply(self, target: Process, setting: int) -> Undo:
        import torch

        held = _Held(torch.get_num_threads(), setting)
        torch.set_num_threads(setting)
        unpatch = target.patches.wrap(torch, "set_num_threads", held.around)

        def undo() -> None:
            unpatch()
            torch.set_num_threads(held.wanted)

        return undo


class _Held:
    """The number of threads of this process; `wanted` is what the script has asked for."""

    def __init__(self, wanted: int, setting: int) -> None:
        self.wanted, self.setting = wanted, setting
        self._process, self._thread = os.getpid(), threading.get_ident()

    def around(self, original: Callable[[int], None]) -> Callable[..., None]:
        @functools.wraps(original)
        def set_num_threads(number: int, *args: Any) -> None:
            original(number, *args)
            if self._trains():
                self.wanted = number
                original(self.setting)

        return set_num_threads

    def _trains(self) -> bool:
        """Workers, and the thread that pins batches, keep themselves to one thread: that is theirs to decide."""
        here = threading.current_thread()
        return os.getpid() == self._process and (
            here is threading.main_thread() or here.ident == self._thread
        )
