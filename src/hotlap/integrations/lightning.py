"""Lightning: the Trainer of `lightning.pytorch` and `pytorch_lightning`, and Fabric.

What is named
    `Strategy.training_step` is forward, `Strategy.batch_to_device` transfer, an evaluation loop (the
    sanity check too) validate, `self.log`, the logger connector and the progress bars log, everything
    around a saved file checkpoint.
What is not
    Users' callbacks and hooks: their time is `other`, with its lines.
What is offered
    To the Trainer: precision, log-every, validate-every, limit-validation, cudnn-benchmark and ddp-spawn as it is
    built,
    accumulate, checkpoint-every and monitor-budget as `fit` begins, when module and callbacks are known. To Fabric:
    precision. DistributedDataParallel is torch's own there, and so are the knobs for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from types import ModuleType
from typing import Any, ClassVar

from hotlap.facts.timeline import Stage
from hotlap.integrations import (
    Arguments,
    Met,
    Overrides,
    Points,
    attributes,
    before,
    built_here,
    constructing,
    following,
    option,
    stage_points,
)
from hotlap.knobs.monitor_budget import thin
from hotlap.ports.integration import Integration, Seams, Stager
from hotlap.ports.knob import CannotActError
from hotlap.ports.target import Trainer, Undo, together
from hotlap.probe.boundary import contained

_TRAINER = "pytorch.trainer.trainer"
_EVALUATION = "pytorch.loops.evaluation_loop"
_STRATEGIES = "pytorch.strategies.strategy"
_FABRIC = "fabric.fabric"
_STAND_ALONE = {"pytorch": "pytorch_lightning", "fabric": "lightning_fabric"}
_STRATEGY: Points = {"training_step": Stage.FORWARD, "batch_to_device": Stage.TRANSFER}

# Module names as in the `lightning` package; the stand-alone packages differ only in how the name begins.
_POINTS: dict[str, Points] = {
    _TRAINER: {"Trainer.save_checkpoint": Stage.CHECKPOINT},
    _STRATEGIES: {f"Strategy.{name}": stage for name, stage in _STRATEGY.items()},
    # A fetcher also feeds from iterables that are no DataLoader.
    "pytorch.loops.fetchers": {"_DataFetcher.__next__": Stage.DATA},
    _EVALUATION: {"_EvaluationLoop.run": Stage.VALIDATE},
    "pytorch.core.module": {"LightningModule.log": Stage.LOG},
    "pytorch.trainer.connectors.logger_connector.logger_connector": {
        "_LoggerConnector.on_batch_end": Stage.LOG,
        "_LoggerConnector.on_epoch_end": Stage.LOG,
        "_LoggerConnector.update_train_step_metrics": Stage.LOG,
        "_LoggerConnector.update_train_epoch_metrics": Stage.LOG,
        "_LoggerConnector.log_eval_end_metrics": Stage.LOG,
        "_LoggerConnector.log_metrics": Stage.LOG,
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

# Collect metrics for callbacks that stop or save by them, and for schedulers; loggers get theirs by `log_metrics`.
_COLLECTED = frozenset(
    {
        "LightningModule.log",
        "_LoggerConnector.on_batch_end",
        "_LoggerConnector.on_epoch_end",
        "_LoggerConnector.update_train_step_metrics",
        "_LoggerConnector.update_train_epoch_metrics",
        "_LoggerConnector.log_eval_end_metrics",
    }
)


def _alone(name: str) -> str:
    part, _, rest = name.partition(".")
    return f"{_STAND_ALONE[part]}.{rest}"


_IN_ONE_PACKAGE = {_alone(name): name for name in _POINTS}


_WITH_EACH_BATCH = (
    "on_train_batch_start",
    "on_train_batch_end",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_before_zero_grad",
)
_AUTOCAST = {"16-mixed": "float16", "bf16-mixed": "bfloat16"}
_PRECISIONS = {"32": "32-true", "16-mixed": "16-mixed", "bf16-mixed": "bf16-mixed"}


class Lightning(Integration):
    """`framework` is noted when `fit` starts, or when Fabric sets a model up; an import says nothing."""

    id = "lightning"
    modules: ClassVar[tuple[str, ...]] = (
        *(f"lightning.{name}" for name in _POINTS),
        *(_alone(name) for name in _POINTS),
    )

    def __init__(self) -> None:
        self._overrides = Overrides(_STRATEGY)
        self._met = Met()
        self._limits_validation = self._moves_validation = False

    def attach(self, module: ModuleType, stager: Stager) -> None:
        name = _in_one_package(module)
        stage_points(stager, module, _POINTS[name], _COLLECTED)
        if name == _TRAINER:
            # Not `fit` itself: LightningCLI reads its signature, and a spawned process never calls it.
            stager.wrap(module.Trainer, "__init__", built_here(stager))
            stager.wrap(module.Trainer, "_fit_impl", before(contained(partial(self._fit_begins, stager))))
        elif name == _FABRIC:
            for method in ("setup", "setup_module"):
                stager.wrap(module.Fabric, method, before(lambda _: stager.note("framework", "fabric")))

    def _fit_begins(self, stager: Stager, trainer: Any) -> None:
        stager.note("framework", self.id)
        stager.note("autocast", _AUTOCAST.get(str(getattr(trainer, "precision", ""))))
        self._overrides.stage(stager, type(trainer.strategy), "Strategy")

    # -- a plan --------------------------------------------------------------------------------------------------

    def offer(self, module: ModuleType, seams: Seams) -> None:
        name = _in_one_package(module)
        if name == _TRAINER:
            seams.wrap(module.Trainer, "__init__", constructing(partial(self._trainer_built, seams)))
            seams.wrap(module.Trainer, "_fit_impl", _as_fit_begins(partial(self._fitted, seams)))
        elif name == _FABRIC:
            seams.wrap(module.Fabric, "__init__", constructing(partial(_fabric_built, seams)))
        elif name == _EVALUATION:
            seams.wrap(module, "_parse_num_batches", self._at_least_one_batch)
        elif name == _STRATEGIES:
            seams.wrap(module.Strategy, "setup_optimizers", following(self._optimizers_set_up))

    def _trainer_built(self, seams: Seams, _: Any, arguments: Arguments) -> None:
        takes = {
            "precision": partial(_precision, arguments),
            "log-every": partial(option, arguments, "log_every_n_steps"),
            "validate-every": partial(self._validate_every, arguments),
            "limit-validation": partial(self._limit_validation, arguments),
            "cudnn-benchmark": partial(option, arguments, "benchmark"),
            "ddp-spawn": partial(_ddp_spawn, arguments),
        }
        seams.trainer(Trainer(self.id, takes))

    def _fitted(self, seams: Seams, trainer: Any, module: Any) -> None:
        if not self._met.first_time(trainer):
            return
        offered = Trainer(self.id, takes := {})
        if getattr(module, "automatic_optimization", True):
            takes["accumulate"] = partial(_accumulate, trainer, offered.growth)
        takes["checkpoint-every"] = partial(_checkpoint_every, trainer)
        takes["monitor-budget"] = partial(_monitor_budget, seams, trainer)
        seams.trainer(offered)

    def _validate_every(self, arguments: Arguments, batches: int) -> Undo:
        self._moves_validation = True
        # Without a number of epochs, batches are counted on over their ends.
        every = {"val_check_interval": batches, "check_val_every_n_epoch": None}
        return together([option(arguments, name, value) for name, value in every.items()])

    def _optimizers_set_up(self, strategy: Any, _: Any) -> None:
        """A schedule that waits for a validated figure at the end of an epoch may not find it there any more."""
        for schedule in strategy.lr_scheduler_configs if self._moves_validation else ():
            schedule.strict = False

    def _limit_validation(self, arguments: Arguments, share: float) -> Undo:
        self._limits_validation = True
        return option(arguments, "limit_val_batches", float(share))

    def _at_least_one_batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Lightning raises where a share of a short or an endless loader comes to no batch."""

        @wraps(original)
        def parsed(stage: Any, length: Any, limit: Any) -> Any:
            if self._limits_validation and isinstance(limit, float) and 0.0 < limit < 1.0:
                return length if length in (0, float("inf")) else max(1, int(length * limit))
            return original(stage, length, limit)

        return parsed


def _in_one_package(module: ModuleType) -> str:
    return _IN_ONE_PACKAGE.get(module.__name__) or module.__name__.removeprefix("lightning.")


def _as_fit_begins(offer: Callable[[Any, Any], None]) -> Callable[..., Any]:
    def around(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def fit(trainer: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
            contained(offer)(trainer, model)
            return original(trainer, model, *args, **kwargs)

        return fit

    return around


def _fabric_built(seams: Seams, _: Any, arguments: Arguments) -> None:
    seams.trainer(Trainer("fabric", {"precision": partial(_precision, arguments)}))


def _precision(arguments: Arguments, setting: Any) -> Undo:
    import torch

    if str(setting) == "16-mixed" and not torch.cuda.is_available():
        raise CannotActError("Lightning would train in bf16 on a machine without a GPU: ask for bf16-mixed")
    plugins = arguments.get("plugins") or ()
    given = plugins if isinstance(plugins, list | tuple) else (plugins,)
    if any("Precision" in kind.__name__ for each in given for kind in type(each).__mro__):
        raise CannotActError("the script gives the trainer a precision plugin of its own")
    return option(arguments, "precision", _PRECISIONS[str(setting)])


def _ddp_spawn(arguments: Arguments, spawn: bool) -> Undo:
    strategy = arguments.get("strategy", "auto")
    if strategy not in ("auto", "ddp", "ddp_spawn"):
        raise CannotActError(f"the script asks for the strategy {strategy}")
    if arguments.get("devices", "auto") in (1, "1", [0]):
        raise CannotActError("one rank trains: there is nobody to start")
    return option(arguments, "strategy", "ddp_spawn" if spawn else "ddp")


def _accumulate(trainer: Any, growth: dict[str, float], times: int) -> Undo:
    if any(kind.__name__ == "GradientAccumulationScheduler" for kind in map(type, trainer.callbacks)):
        raise CannotActError("a GradientAccumulationScheduler of the script decides")
    growth["accumulate"] = float(times)
    return attributes(trainer, accumulate_grad_batches=trainer.accumulate_grad_batches * times)


def _checkpoint_every(trainer: Any, steps: int) -> Undo:
    """One that follows a validated figure saves when that is there, and would raise without it."""
    free = [each for each in trainer.checkpoint_callbacks if getattr(each, "monitor", "") is None]
    if not free:
        raise CannotActError(
            "no checkpoint is saved by count; those that follow a monitored figure come with validation: "
            "set validate-every"
        )
    values = {"_every_n_train_steps": steps, "_every_n_epochs": 0, "_train_time_interval": None}
    return together([attributes(each, **values) for each in free])


def _monitor_budget(seams: Seams, trainer: Any, share: float) -> Undo:
    kinds = {kind for each in trainer.callbacks for kind in type(each).__mro__}
    base = next((kind for kind in kinds if kind.__name__ == "Callback"), None)
    if base is None:
        raise CannotActError("the trainer has no callbacks")
    return thin(trainer.callbacks, base, _WITH_EACH_BATCH, share, seams.wrap)
