"""A plan as a callback of Lightning: `Trainer(callbacks=[hotlap.LightningCallback("plan.yaml")])`."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from hotlap.seams.library import PlanCallback

if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:
    # The package that the script uses: it has two names, and a Trainer of one knows no callbacks of the other.
    _NAMES = ("lightning.pytorch", "pytorch_lightning")
    _USED = next((name for name in _NAMES if name in sys.modules), _NAMES[0])
    Callback = importlib.import_module(_USED).Callback


class LightningCallback(PlanCallback, Callback):
    """Build it where the Trainer is built, or before; loaders that the Trainer is given must come after it."""

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        self._plan.tell(trainer.global_rank)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002 Lightning's signature
        if stage == "fit":
            self.applied.undo()
