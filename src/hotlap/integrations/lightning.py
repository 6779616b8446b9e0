"""Lightning: the Trainer of `lightning.pytorch` and `pytorch_lightning`, and Fabric.

What is named
    `Strategy.training_step` is forward, `Strategy.batch_to_device` transfer, an evaluation loop (the
    sanity check too) validate, `self.log`, the logger connector and the progress bars log, everything
    around a saved file checkpoint.
What is not
    Users' callbacks and hooks: their time is `other`, with its lines.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any, ClassVar

from hotlap.facts.timeline import Stage
from hotlap.integrations import Overrides, Points, before, stage_points
from hotlap.ports.integration import Integration, Stager
from hotlap.probe.boundary import contained

_TRAINER = "pytorch.trainer.trainer"
_FABRIC = "fabric.fabric"
_STAND_ALONE = {"pytorch": "pytorch_lightning", "fabric": "lightning_fabric"}
_STRATEGY: Points = {"training_step": Stage.FORWARD, "batch_to_device": Stage.TRANSFER}

# Module names as in the `lightning` package; the stand-alone packages differ only in how the name begins.
_POINTS: dict[str, Points] = {
    _TRAINER: {"Trainer.save_checkpoint": Stage.CHECKPOINT},
    "pytorch.strategies.strategy": {f"Strategy.{name}": stage for name, stage in _STRATEGY.items()},
    # A fetcher also feeds from iterables that are no DataLoader.
    "pytorch.loops.fetchers": {"_DataFetcher.__next__": Stage.DATA},
    "pytorch.loops.evaluation_loop": {"_EvaluationLoop.run": Stage.VALIDATE},
    "pytorch.core.module": {"LightningModule.log": Stage.LOG},
    "pytorch.trainer.connectors.logger_connector.logger_connector": {
        "_LoggerConnector.on_batch_end": Stage.LOG,
        "_LoggerConnector.on_epoch_end": Stage.LOG,
        "_LoggerConnector.update_train_step_metrics": Stage.LOG,
        "_LoggerConnector.update_train_epoch_metrics": Stage.LOG,
        "_LoggerConnector.log_eval_end_metrics": Stage.LOG,
    },
    "pytorch.callbacks.model_checkpoint": {
        # Beside the saving: choosing the file, asking the disk about it, removing the one it replaces.
        "ModelCheckpoint._save_topk_checkpoint": Stage.CHECKPOINT,
        "ModelCheckpoint._save_last_checkpoint": Stage.CHECKPOINT,
    },
    "pytorch.callbacks.progress.tqdm_progress": {
        "TQDMProgressBar.on_train_batch_end": Stage.LOG,
        "TQDMProgressBar.on_train_epoch_end": Stage.LOG,
    },
    "pytorch.callbacks.progress.rich_progress": {
        "RichProgressBar.on_train_batch_end": Stage.LOG,
        "RichProgressBar.on_train_epoch_end": Stage.LOG,
    },
    _FABRIC: {
        "Fabric.save": Stage.CHECKPOINT,
        "Fabric.log": Stage.LOG,
        "Fabric.log_dict": Stage.LOG,
        "Fabric.to_device": Stage.TRANSFER,
    },
    # The wrapped data loader of Fabric moves each batch by this name in its own module.
    "fabric.wrappers": {"move_data_to_device": Stage.TRANSFER},
}


def _alone(name: str) -> str:
    part, _, rest = name.partition(".")
    return f"{_STAND_ALONE[part]}.{rest}"


_IN_ONE_PACKAGE = {_alone(name): name for name in _POINTS}


class Lightning(Integration):
    """`framework` is noted when `fit` starts, or when Fabric sets a model up; an import says nothing."""

    id = "lightning"
    modules: ClassVar[tuple[str, ...]] = (
        *(f"lightning.{name}" for name in _POINTS),
        *(_alone(name) for name in _POINTS),
    )

    def __init__(self) -> None:
        self._overrides = Overrides(_STRATEGY)

    def attach(self, module: ModuleType, stager: Stager) -> None:
        name = _IN_ONE_PACKAGE.get(module.__name__) or module.__name__.removeprefix("lightning.")
        stage_points(stager, module, _POINTS[name])
        if name == _TRAINER:
            # Not `fit` itself: LightningCLI reads its signature, and a spawned process never calls it.
            stager.wrap(module.Trainer, "_fit_impl", before(contained(partial(self._fit_begins, stager))))
        elif name == _FABRIC:
            for method in ("setup", "setup_module"):
                stager.wrap(module.Fabric, method, before(lambda _: stager.note("framework", "fabric")))

    def _fit_begins(self, stager: Stager, trainer: Any) -> None:
        stager.note("framework", self.id)
        self._overrides.stage(stager, type(trainer.strategy), "Strategy")
