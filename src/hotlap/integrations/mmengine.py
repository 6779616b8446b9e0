"""MMEngine: the Runner of mmdet, mmseg and their kin.

What is named
    `cast_data` of the data preprocessor is transfer, a validation or test loop validate, the hooks that
    keep and print the scalars and the visualizer log, everything around a saved file checkpoint. The
    parameter schedulers and the averaged model are part of the optimizer.
What is not
    Users' hooks: their time is `other`, with its lines.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

from hotlap.facts.timeline import Stage
from hotlap.integrations import Overrides, Points, before, stage_points
from hotlap.ports.integration import Integration, Stager
from hotlap.probe.boundary import contained

_LOOP: Points = {"run": Stage.VALIDATE}
_VISUALIZER: Points = {
    "add_image": Stage.LOG,
    "add_scalar": Stage.LOG,
    "add_scalars": Stage.LOG,
    "add_datasample": Stage.LOG,
}
_RUNNERS = {"mmengine.runner.runner": "Runner", "mmengine.runner._flexible_runner": "FlexibleRunner"}
_PREPROCESSOR = "mmengine.model.base_model.data_preprocessor"

_POINTS: dict[str, Points] = {
    **{module: {f"{runner}.save_checkpoint": Stage.CHECKPOINT} for module, runner in _RUNNERS.items()},
    _PREPROCESSOR: {},
    "mmengine.runner.loops": {
        "ValLoop.run": Stage.VALIDATE,
        "TestLoop.run": Stage.VALIDATE,
        # Sleeps for two seconds before it starts the loader again, outside of anything that torch sees.
        "_InfiniteDataloaderIterator.__next__": Stage.DATA,
    },
    "mmengine.visualization.visualizer": {f"Visualizer.{name}": stage for name, stage in _VISUALIZER.items()},
    "mmengine.hooks.checkpoint_hook": {
        "CheckpointHook._save_checkpoint": Stage.CHECKPOINT,
        "CheckpointHook._save_best_checkpoint": Stage.CHECKPOINT,
    },
    "mmengine.hooks.logger_hook": {
        "LoggerHook.after_train_iter": Stage.LOG,
        "LoggerHook.after_val_epoch": Stage.LOG,
    },
    "mmengine.hooks.runtime_info_hook": {
        "RuntimeInfoHook.before_train_iter": Stage.LOG,
        "RuntimeInfoHook.after_train_iter": Stage.LOG,
    },
    "mmengine.hooks.iter_timer_hook": {"IterTimerHook._after_iter": Stage.LOG},
    "mmengine.hooks.param_scheduler_hook": {"ParamSchedulerHook.after_train_iter": Stage.OPTIMIZER},
    "mmengine.model.averaged_model": {"BaseAveragedModel.update_parameters": Stage.OPTIMIZER},
}


class MMEngine(Integration):
    """`framework` is noted when a Runner starts to train."""

    id = "mmengine"
    modules: ClassVar[tuple[str, ...]] = tuple(_POINTS)

    def __init__(self) -> None:
        self._loops = Overrides(_LOOP)
        self._visualizers = Overrides(_VISUALIZER)

    def attach(self, module: ModuleType, stager: Stager) -> None:
        stage_points(stager, module, _POINTS[module.__name__])
        if module.__name__ == _PREPROCESSOR:
            stager.wrap(module.BaseDataPreprocessor, "cast_data", partial(_outermost, stager))
        elif runner := _RUNNERS.get(module.__name__):
            owner = getattr(module, runner)
            stager.wrap(owner, "train", before(contained(partial(self._train_begins, stager))))
            stager.wrap(owner, "build_val_loop", self._around_build(stager))

    def _train_begins(self, stager: Stager, runner: Any) -> None:
        stager.note("framework", self.id)
        self._visualizers.stage(stager, type(runner.visualizer), "Visualizer")

    def _around_build(self, stager: Stager) -> Callable[..., Any]:
        def around(original: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(original)
            def build_val_loop(*args: Any, **kwargs: Any) -> Any:
                loop = original(*args, **kwargs)
                contained(self._loops.stage)(stager, type(loop), "ValLoop")
                return loop

            return build_val_loop

        return around


def _outermost(stager: Stager, original: Callable[..., Any]) -> Callable[..., Any]:
    """`cast_data` calls itself for every sample of a batch; only the outermost call is worth two marks."""
    staged = SimpleNamespace(cast_data=original)
    stager.stage(staged, "cast_data", Stage.TRANSFER)
    inside: set[int] = set()

    @wraps(original)
    def cast_data(self: Any, data: Any) -> Any:
        if id(self) in inside:
            return original(self, data)
        inside.add(id(self))
        try:
            return staged.cast_data(self, data)
        finally:
            inside.discard(id(self))

    return cast_data
