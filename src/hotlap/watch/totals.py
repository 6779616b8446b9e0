"""How long a training will be, as its framework knows it."""

from __future__ import annotations

import math
import sys
from types import FrameType
from typing import Any

_MOST_FRAMES = 200


def framework_total(frame: FrameType | None) -> int | None:
    """Optimizer steps of the whole training, from the trainer on the stack; None in a loop of one's own."""
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return None
        owner = frame.f_locals.get("self")
        found = _total_of(owner) if owner is not None else None
        if found is not None:
            return found
        frame = frame.f_back
    return None


def _total_of(owner: Any) -> int | None:
    package = type(owner).__module__.partition(".")[0]
    kind = type(owner).__name__
    total: Any = None
    if package in ("lightning", "pytorch_lightning") and kind == "Trainer":
        total = owner.estimated_stepping_batches
    elif "transformers.trainer" in sys.modules and isinstance(
        owner, sys.modules["transformers.trainer"].Trainer
    ):
        total = owner.state.max_steps
    elif package == "mmengine" and hasattr(owner, "max_iters"):
        total = owner.max_iters
    usable = isinstance(total, int | float) and math.isfinite(total) and total > 0
    return int(total) if usable else None
