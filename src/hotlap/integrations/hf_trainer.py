"""The Trainer of Hugging Face transformers.

What is named
    `compute_loss` is forward, `_prepare_inputs` transfer, `evaluate` and `predict` validate, saving
    checkpoint, `log`, its preparation and the progress bar log; also where a subclass overrides them.
What is not
    Users' callbacks: their time is `other`, with its lines.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any, ClassVar

from hotlap.facts.timeline import Stage
from hotlap.integrations import Overrides, Points, before, stage_points
from hotlap.ports.integration import Integration, Stager
from hotlap.probe.boundary import contained

_TRAINER: Points = {
    "compute_loss": Stage.FORWARD,
    "_prepare_inputs": Stage.TRANSFER,
    "evaluate": Stage.VALIDATE,
    "predict": Stage.VALIDATE,
    "save_model": Stage.CHECKPOINT,
    "_save_checkpoint": Stage.CHECKPOINT,
    "log": Stage.LOG,
    # Reads the loss back from the device before it logs; evaluating and saving are named inside it.
    "_maybe_log_save_evaluate": Stage.LOG,
    # Counts the tokens and operations of each batch, for the log.
    "floating_point_ops": Stage.LOG,
    "_track_num_input_tokens": Stage.LOG,
}

_POINTS: dict[str, Points] = {
    "transformers.trainer": {f"Trainer.{name}": stage for name, stage in _TRAINER.items()},
    "transformers.trainer_callback": {
        "ProgressCallback.on_step_end": Stage.LOG,
        "CallbackHandler.on_save": Stage.CHECKPOINT,  # uploads, mostly
    },
}


class HfTrainer(Integration):
    """`framework` is noted when `train` is called."""

    id = "hf-trainer"
    modules: ClassVar[tuple[str, ...]] = tuple(_POINTS)

    def __init__(self) -> None:
        self._overrides = Overrides(_TRAINER)

    def attach(self, module: ModuleType, stager: Stager) -> None:
        stage_points(stager, module, _POINTS[module.__name__])
        if module.__name__ == "transformers.trainer":
            stager.wrap(module.Trainer, "train", before(contained(partial(self._train_begins, stager))))

    def _train_begins(self, stager: Stager, trainer: Any) -> None:
        stager.note("framework", self.id)
        self._overrides.stage(stager, type(trainer), "Trainer")
