"""Accelerate, as scripts with a loop of their own use it.

What is named
    Batches that a prepared loader moves to the device are transfer, clipping is part of the optimizer,
    `log` is log, `save`, `save_model` and `save_state` are checkpoint. Forward, backward and step are
    torch's own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any, ClassVar

from hotlap.facts.timeline import Stage
from hotlap.integrations import Points, stage_points
from hotlap.ports.integration import Integration, Stager

_POINTS: dict[str, Points] = {
    "accelerate.accelerator": {
        "Accelerator.clip_grad_norm_": Stage.OPTIMIZER,
        "Accelerator.clip_grad_value_": Stage.OPTIMIZER,
        "Accelerator.log": Stage.LOG,
        "Accelerator.save": Stage.CHECKPOINT,
        "Accelerator.save_model": Stage.CHECKPOINT,
        "Accelerator.save_state": Stage.CHECKPOINT,
    },
    # The prepared loader moves each batch by this name in its own module.
    "accelerate.data_loader": {"send_to_device": Stage.TRANSFER},
}


class Accelerate(Integration):
    """`framework` is noted when a script calls `prepare`, but not when the Trainer of transformers does."""

    id = "accelerate"
    modules: ClassVar[tuple[str, ...]] = tuple(_POINTS)

    def attach(self, module: ModuleType, stager: Stager) -> None:
        stage_points(stager, module, _POINTS[module.__name__])
        if module.__name__ == "accelerate.accelerator":
            stager.wrap(module.Accelerator, "prepare", self._around_prepare(stager))

    def _around_prepare(self, stager: Stager) -> Callable[..., Any]:
        def around(original: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(original)
            def prepare(*args: Any, **kwargs: Any) -> Any:
                caller = str(sys._getframe(1).f_globals.get("__name__"))
                if not caller.startswith("transformers."):
                    stager.note("framework", self.id)
                return original(*args, **kwargs)

            return prepare

        return around
