"""A plan as a callback of Hugging Face's Trainer: `Trainer(..., callbacks=[hotlap.HFCallback("plan.yaml")])`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from hotlap.facts.plan import Plan
from hotlap.seams.library import Applied, Applying


class HFCallback(TrainerCallback):
    """Build it where the Trainer is built, or before."""

    def __init__(self, plan: Plan | Mapping[str, Any] | str | Path) -> None:
        self._plan = Applying(plan)

    @property
    def applied(self) -> Applied:
        """What became of the plan."""
        return self._plan.applied

    def on_step_end(self, args: Any, *_: Any, **__: Any) -> None:
        self._plan.tell(args.process_index)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.applied.undo()
