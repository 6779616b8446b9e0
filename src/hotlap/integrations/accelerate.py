"""Accelerate, as scripts with a loop of their own use it.

What is named
    Batches that a prepared loader moves to the device are transfer, clipping is part of the optimizer,
    `log` is log, `save`, `save_model` and `save_state` are checkpoint. Forward, backward and step are
    torch's own.
What is offered
    To the Accelerator: precision. Its own accumulation only acts inside of `accumulate()`, which a script may not
    call: accumulate is left to the step's seam, which counts the steps that the Accelerator makes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, wraps
from types import ModuleType
from typing import Any, ClassVar

from hotlap.facts.timeline import Stage
from hotlap.integrations import Arguments, Points, constructing, option, stage_points
from hotlap.ports.integration import Integration, Seams, Stager
from hotlap.ports.knob import CannotActError
from hotlap.ports.target import Trainer, Undo

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


_OUT_OF_HERE = (
    3  # frames from an offer to the line that builds: the offer, its boundary, the constructor's wrapper
)


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

    def offer(self, module: ModuleType, seams: Seams) -> None:
        if module.__name__ == "accelerate.accelerator":
            seams.wrap(module.Accelerator, "__init__", constructing(partial(self._built, seams)))

    def _built(self, seams: Seams, _: Any, arguments: Arguments) -> None:
        """The Trainer of transformers builds one too, and has been asked itself."""
        caller = str(sys._getframe(_OUT_OF_HERE).f_globals.get("__name__"))
        if not caller.startswith("transformers."):
            seams.trainer(Trainer(self.id, {"precision": partial(_precision, arguments)}))


_PRECISIONS = {"32": "no", "16-mixed": "fp16", "bf16-mixed": "bf16"}


def _precision(arguments: Arguments, setting: Any) -> Undo:
    import torch

    if str(setting) == "16-mixed" and (arguments.get("cpu") or not torch.cuda.is_available()):
        raise CannotActError("Accelerate has no fp16 on the CPU: ask for bf16-mixed")
    return option(arguments, "mixed_precision", _PRECISIONS[str(setting)])
