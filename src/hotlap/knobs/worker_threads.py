"""Give each worker of a loader this many threads.

What it does
    In each worker, sets the threads of torch, of OpenCV where it is imported, and of BLAS and OpenMP where
    `threadpoolctl` is installed; libraries that are loaded later read it from the environment. It comes before the
    script's own `worker_init_fn`, which has the last word.
When it helps
    Workers whose libraries use all cores each: torch keeps itself to one thread in a worker, NumPy and OpenCV do not.
What it costs
    A worker that really needs several threads becomes slower. Forked workers are kept to one: OpenMP's threads do
    not survive a fork, and waiting for them never ends.
Numerics
    Sums of libraries that split them among threads may round differently.
"""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import os
import sys
from typing import Any

from hotlap.cost.reading import training_loader
from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.timeline import Timeline
from hotlap.ports.knob import CannotActError, DataKnob, Numerics
from hotlap.ports.target import Loader, Seam, Undo
from hotlap.ports.values import Whole

_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class WorkerThreads(DataKnob):
    id = "worker-threads"
    relieves = frozenset({Cause.WORKERS_TOO_MANY})
    seam = Seam.LOADER
    numerics = Numerics.ROUNDING
    values = Whole(1, 256)
    # Threads without a core slow down the training as well: what the step waits for is a modest ceiling.

    def settings(self, host: Host, timeline: Timeline) -> tuple[int, ...]:
        found = training_loader(timeline)
        if found is None or not found[1].num_workers or (found[1].worker_threads or 1) <= 1:
            return ()
        return (1,)

    def apply(self, target: Loader, setting: int) -> Undo:
        if not target.arguments["num_workers"]:
            raise CannotActError("the loader has no workers; set num-workers as well")
        if setting > 1 and _start_method(target.arguments["multiprocessing_context"]) == "fork":
            raise CannotActError("the loader's workers are forked, and threads do not survive a fork")
        threads = ThreadLimiter(setting)
        target.setups.append(threads)
        return lambda: target.setups.remove(threads)


class ThreadLimiter:
    """Called first in a worker. Can be pickled: workers may be spawned."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._limits: Any = None  # of threadpoolctl: ends when it is forgotten

    def __call__(self) -> None:
        import torch

        os.environ.update(dict.fromkeys(_VARIABLES, str(self._count)))
        torch.set_num_threads(self._count)
        if "cv2" in sys.modules:
            sys.modules["cv2"].setNumThreads(self._count)
        if importlib.util.find_spec("threadpoolctl") is not None:
            self._limits = importlib.import_module("threadpoolctl").threadpool_limits(self._count)


def _start_method(context: Any) -> str:
    if context is None:
        default = "fork" if sys.platform == "linux" and sys.version_info < (3, 14) else "spawn"
        return multiprocessing.get_start_method(allow_none=True) or default
    return context if isinstance(context, str) else str(context.get_start_method())
