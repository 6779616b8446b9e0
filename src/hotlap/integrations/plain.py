"""What a loop without a framework uses beside torch's own step: loggers, progress bars, savers, averages."""

from __future__ import annotations

from types import ModuleType
from typing import ClassVar

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


class Plain(Integration):
    """Notes no framework: `plain` is what a run is until one says otherwise."""

    id = "plain"
    modules: ClassVar[tuple[str, ...]] = ("torch", *_WRITERS, *_POINTS)

    def attach(self, module: ModuleType, stager: Stager) -> None:
        if module.__name__ == "torch":
            # The averaged weights are kept up to date right after the step, and belong to it.
            stager.stage(module.optim.swa_utils.AveragedModel, "update_parameters", Stage.OPTIMIZER)
        elif module.__name__ in _WRITERS:
            _stage_writer(module.SummaryWriter, stager)
        else:
            stage_points(stager, module, _POINTS[module.__name__])


def _stage_writer(writer: type, stager: Stager) -> None:
    for name in [*vars(writer)]:
        if name.startswith("add_") or name in ("flush", "close"):
            stager.stage(writer, name, Stage.LOG)
