"""MMEngine: the Runner of mmdet, mmseg and their kin.

What is named
    `cast_data` of the data preprocessor is transfer, a validation or test loop validate, the hooks that
    keep and print the scalars and the visualizer log, everything around a saved file checkpoint. The
    parameter schedulers and the averaged model are part of the optimizer.
What is not
    Users' hooks: their time is `other`, with its lines.
What is offered
    As a Runner is built: accumulate, and precision where there is a GPU (AmpOptimWrapper asks for one; elsewhere the
    model's seam casts). As it begins to train: log-every, validate-every, checkpoint-every, limit-validation,
    monitor-budget. A Runner that trains by epochs validates and saves after whole epochs: the nearest number of
    them is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

from hotlap.facts.timeline import Stage
from hotlap.integrations import (
    Arguments,
    FirstBatches,
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
_COLLECTED = frozenset(  # for the hooks and the log processor
    {
        "RuntimeInfoHook.before_train_iter",
        "RuntimeInfoHook.after_train_iter",
        "IterTimerHook._after_iter",
    }
)


class MMEngine(Integration):
    """`framework` is noted when a Runner starts to train."""

    id = "mmengine"
    modules: ClassVar[tuple[str, ...]] = tuple(_POINTS)

    def __init__(self) -> None:
        self._loops = Overrides(_LOOP)
        self._visualizers = Overrides(_VISUALIZER)
        self._trained = Met()
        self._accumulates = False

    def attach(self, module: ModuleType, stager: Stager) -> None:
        stage_points(stager, module, _POINTS[module.__name__], _COLLECTED)
        if module.__name__ == _PREPROCESSOR:
            stager.wrap(module.BaseDataPreprocessor, "cast_data", partial(_outermost, stager))
        elif runner := _RUNNERS.get(module.__name__):
            owner = getattr(module, runner)
            stager.wrap(owner, "__init__", built_here(stager))
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

    # -- a plan --------------------------------------------------------------------------------------------------

    def offer(self, module: ModuleType, seams: Seams) -> None:
        if module.__name__ == "mmengine.runner.runner":
            seams.wrap(module.Runner, "__init__", constructing(partial(self._runner_built, seams)))
            seams.wrap(module.Runner, "build_train_loop", following(partial(self._train_loop_built, seams)))
            seams.wrap(module.Runner, "build_val_loop", following(partial(self._val_loop_built, seams)))
        elif module.__name__ == "mmengine.hooks.param_scheduler_hook":
            seams.wrap(module.ParamSchedulerHook, "after_train_iter", self._once_a_step)

    def _runner_built(self, seams: Seams, _: Any, arguments: Arguments) -> None:
        import torch

        offered = Trainer(self.id, takes := dict[str, Callable[[Any], Undo]]())
        takes["accumulate"] = partial(self._accumulate, arguments, offered.growth)
        if torch.cuda.is_available() and isinstance(arguments.get("optim_wrapper"), dict):
            takes["precision"] = partial(_precision, arguments)
        if (arguments.get("auto_scale_lr") or {}).get("enable"):
            takes["scale-lr"] = _scales_by_itself
        seams.trainer(offered)

    def _train_loop_built(self, seams: Seams, runner: Any, loop: Any) -> None:
        if self._trained.first_time(loop):
            takes = {
                "log-every": partial(_log_every, runner),
                "validate-every": partial(_validate_every, loop),
                "checkpoint-every": partial(_checkpoint_every, runner, loop),
                "monitor-budget": partial(_monitor_budget, seams, runner),
            }
            seams.trainer(Trainer(self.id, takes))

    def _val_loop_built(self, seams: Seams, _: Any, loop: Any) -> None:
        if self._trained.first_time(loop):
            seams.trainer(Trainer(self.id, {"limit-validation": partial(_limit_validation, loop)}))

    def _accumulate(self, arguments: Arguments, growth: dict[str, float], times: int) -> Undo:
        wrapper = arguments.get("optim_wrapper")
        if isinstance(wrapper, dict) and "optimizer" in wrapper:
            count = wrapper.get("accumulative_counts", 1) * times
            undo = option(
                arguments, "optim_wrapper", type(wrapper)({**wrapper, "accumulative_counts": count})
            )
        elif counts := getattr(wrapper, "_accumulative_counts", None):
            undo = attributes(wrapper, _accumulative_counts=counts * times)
        else:
            raise CannotActError("the Runner has several optimizers, or none")
        growth["accumulate"] = float(times)
        return together([undo, attributes(self, _accumulates=True)])

    def _once_a_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """MMEngine schedules by batches; where several make a step, a schedule would be over too soon."""

        @wraps(original)
        def after_train_iter(hook: Any, runner: Any, *args: Any, **kwargs: Any) -> Any:
            if self._accumulates and not runner.optim_wrapper.should_update():
                return None
            return original(hook, runner, *args, **kwargs)

        return after_train_iter


def _precision(arguments: Arguments, setting: Any) -> Undo:
    wrapper = dict(arguments["optim_wrapper"])
    if wrapper.get("type", "OptimWrapper") not in ("OptimWrapper", "AmpOptimWrapper"):
        raise CannotActError(f"the script has an optimizer wrapper of its own, {wrapper['type']}")
    if str(setting) == "32":
        wrapper = {key: each for key, each in wrapper.items() if key not in ("dtype", "loss_scale")}
        wrapper["type"] = "OptimWrapper"
    else:
        wrapper["type"] = "AmpOptimWrapper"
        wrapper["dtype"] = {"16-mixed": "float16", "bf16-mixed": "bfloat16"}[str(setting)]
    return option(arguments, "optim_wrapper", type(arguments["optim_wrapper"])(wrapper))


def _scales_by_itself(_: Any) -> Undo:
    raise CannotActError("auto_scale_lr of the Runner scales it already")


def _hooks(runner: Any, name: str) -> list[Any]:
    found = [each for each in runner._hooks if any(kind.__name__ == name for kind in type(each).__mro__)]
    if not found:
        raise CannotActError(f"the Runner has no {name}")
    return found


def _epochs(loop: Any, steps: int) -> int:
    return max(1, round(steps / len(loop.dataloader)))


def _log_every(runner: Any, steps: int) -> Undo:
    return together([attributes(hook, interval=steps) for hook in _hooks(runner, "LoggerHook")])


def _validate_every(loop: Any, steps: int) -> Undo:
    if not hasattr(loop, "val_interval"):
        raise CannotActError("the script has a training loop of its own")
    by_epoch = not hasattr(loop, "dataloader_iterator")
    every = _epochs(loop, steps) if by_epoch else steps
    # Intervals that change on the way are read from a list.
    return attributes(loop, val_interval=every, dynamic_intervals=[every] * len(loop.dynamic_intervals))


def _checkpoint_every(runner: Any, loop: Any, steps: int) -> Undo:
    hooks = _hooks(runner, "CheckpointHook")
    return together(
        [attributes(hook, interval=_epochs(loop, steps) if hook.by_epoch else steps) for hook in hooks]
    )


def _limit_validation(loop: Any, share: float) -> Undo:
    kept = max(1, int(len(loop.dataloader) * share))
    return attributes(loop, dataloader=FirstBatches(loop.dataloader, kept))


def _monitor_budget(seams: Seams, runner: Any, share: float) -> Undo:
    kinds = {kind for hook in runner._hooks for kind in type(hook).__mro__}
    base = next((kind for kind in kinds if kind.__module__ == "mmengine.hooks.hook"), None)
    if base is None:
        raise CannotActError("the Runner has no hooks")
    hooks = ("before_train_iter", "after_train_iter", "_before_iter", "_after_iter")
    return thin(runner._hooks, base, hooks, share, seams.wrap)


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
