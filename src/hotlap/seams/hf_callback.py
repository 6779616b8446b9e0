"""A plan as a callback of Hugging Face's Trainer: `Trainer(..., callbacks=[hotlap.HFCallback("plan.yaml")])`."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from hotlap.seams.library import PlanCallback


class HFCallback(PlanCallback, TrainerCallback):
    """Build it where the Trainer is built, or before."""

    def on_step_end(self, args: Any, *_: Any, **__: Any) -> None:
        self._plan.tell(args.process_index)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.applied.undo()
