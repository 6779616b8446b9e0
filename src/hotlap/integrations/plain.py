"""What a loop without a framework uses beside torch's own step: loggers, progress bars, savers, clipping."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

from hotlap.facts.timeline import Stage
from hotlap.integrations import Points, stage_points
from hotlap.ports.integration import Integration, Stager

_WRITERS = ("torch.utils.tensorboard.writer", "tensorboardX.writer")

_POINTS: dict[str, Points] = {
    "tqdm.std": {"tqdm.refresh": Stage.LOG},
    # `wandb.log` is the bound method of the run that `wandb.init` made.
    "wandb.sdk.wandb_run": {"Run.log": Stage.LOG, "Run.log_artifact": Stage.LOG},
    # The functions of `mlflow` all end in a client.
    "mlflow.tracking.client": {
        "MlflowClient.log_metric": Stage.LOG,
        "MlflowClient.log_batch": Stage.LOG,
        "MlflowClient.log_param": Stage.LOG,
        "MlflowClient.log_artifact": Stage.LOG,
        "MlflowClient.log_artifacts": Stage.LOG,
        "MlflowClient.log_image": Stage.LOG,
        "MlflowClient.log_figure": Stage.LOG,
    },
    "aim.sdk.run": {"BasicRun.track": Stage.LOG},
    "safetensors.torch": {"save_file": Stage.CHECKPOINT, "save_model": Stage.CHECKPOINT},
    "torch.distributed.checkpoint.state_dict_saver": {
        "save": Stage.CHECKPOINT,
        "async_save": Stage.CHECKPOINT,
        "save_state_dict": Stage.CHECKPOINT,
    },
}

_CLIPPING = ("clip_grad_norm_", "clip_grad_value_")


class Plain(Integration):
    """Notes no framework: `plain` is what a run is until one says otherwise."""

    id = "plain"
    modules: ClassVar[tuple[str, ...]] = ("torch", *_WRITERS, *_POINTS)

    def attach(self, module: ModuleType, stager: Stager) -> None:
        if module.__name__ == "torch":
            _stage_torch(module, stager)
        elif module.__name__ in _WRITERS:
            _stage_writer(module.SummaryWriter, stager)
        else:
            stage_points(stager, module, _POINTS[module.__name__])


def _stage_writer(writer: type, stager: Stager) -> None:
    for name in [*vars(writer)]:
        if name.startswith("add_") or name in ("flush", "close"):
            stager.stage(writer, name, Stage.LOG)


def _stage_torch(torch: ModuleType, stager: Stager) -> None:
    stager.stage(torch.optim.swa_utils.AveragedModel, "update_parameters", Stage.OPTIMIZER)
    # `torch.nn.utils` took the functions over by name, so both places hold them.
    for owner in (torch.nn.utils, torch.nn.utils.clip_grad):
        for name in _CLIPPING:
            stager.wrap(owner, name, partial(_unless_compiling, torch, stager))


def _unless_compiling(torch: Any, stager: Stager, original: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled train step contains the clipping; a mark inside it would break its graph."""
    staged = SimpleNamespace(clip=original)
    stager.stage(staged, "clip", Stage.OPTIMIZER)
    is_compiling = torch.compiler.is_compiling

    @wraps(original)
    def clip(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) if is_compiling() else staged.clip(*args, **kwargs)

    return clip
