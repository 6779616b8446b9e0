"""The Trainer of Hugging Face transformers.

What is named
    `compute_loss` is forward, `_prepare_inputs` transfer, `evaluate` and `predict` validate, saving
    checkpoint, `log`, its preparation and the progress bar log; also where a subclass overrides them.
What is not
    Users' callbacks: their time is `other`, with its lines.
What is offered
    As a Trainer is built, through its TrainingArguments: batch-size, accumulate, precision, log-every,
    validate-every, checkpoint-every, and limit-validation by cutting the evaluation set; monitor-budget as `train`
    begins. Compiling and fusing are left to the seams of model and optimizer: they go on where the compiler fails,
    and leave no trace in what is saved. DistributedDataParallel is torch's own there, and so are its knobs.
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
    option,
    stage_points,
)
from hotlap.knobs.monitor_budget import thin
from hotlap.ports.integration import Integration, Seams, Stager
from hotlap.ports.knob import CannotActError
from hotlap.ports.target import Trainer, Undo, together
from hotlap.probe.boundary import contained

_EACH_STEP = "_maybe_log_save_evaluate"
_TRAINER: Points = {
    "compute_loss": Stage.FORWARD,
    "_prepare_inputs": Stage.TRANSFER,
    "evaluate": Stage.VALIDATE,
    "predict": Stage.VALIDATE,
    "save_model": Stage.CHECKPOINT,
    "_save_checkpoint": Stage.CHECKPOINT,
    "log": Stage.LOG,
    # Reads the loss back from the device before it logs; evaluating and saving are named inside it.
    _EACH_STEP: Stage.LOG,
    # Counts the tokens and operations of each batch, for the log.
    "floating_point_ops": Stage.LOG,
    "_track_num_input_tokens": Stage.LOG,
}
_COUNTED = frozenset({"floating_point_ops", "_track_num_input_tokens"})  # the Trainer goes on with the sum

_ARGUMENTS = "transformers.training_args"

_POINTS: dict[str, Points] = {
    "transformers.trainer": {f"Trainer.{name}": stage for name, stage in _TRAINER.items()},
    _ARGUMENTS: {},
    "transformers.trainer_callback": {
        "ProgressCallback.on_step_end": Stage.LOG,
        "CallbackHandler.on_save": Stage.CHECKPOINT,  # uploads, mostly
    },
}


_WITH_EACH_STEP = (
    "on_step_begin",
    "on_step_end",
    "on_substep_end",
    "on_pre_optimizer_step",
    "on_optimizer_step",
)


class HfTrainer(Integration):
    """`framework` is noted when `train` is called."""

    id = "hf-trainer"
    modules: ClassVar[tuple[str, ...]] = tuple(_POINTS)

    def __init__(self) -> None:
        self._overrides = Overrides(_TRAINER, _COUNTED)
        self._met = Met()
        self._trained = Met()

    def attach(self, module: ModuleType, stager: Stager) -> None:
        stage_points(stager, module, _POINTS[module.__name__], {f"Trainer.{name}" for name in _COUNTED})
        if module.__name__ == _ARGUMENTS:
            stager.wrap(module.TrainingArguments, "__post_init__", built_here(stager))
        if module.__name__ == "transformers.trainer":
            if hasattr(module.Trainer, _EACH_STEP):
                stager.wrap(module.Trainer, _EACH_STEP, _if_there_is_something_to_do)
            stager.wrap(module.Trainer, "train", before(contained(partial(self._train_begins, stager))))

    def _train_begins(self, stager: Stager, trainer: Any) -> None:
        stager.note("framework", self.id)
        self._overrides.stage(stager, type(trainer), "Trainer")

    # -- a plan --------------------------------------------------------------------------------------------------

    def offer(self, module: ModuleType, seams: Seams) -> None:
        if module.__name__ == "transformers.trainer":
            seams.wrap(module.Trainer, "__init__", constructing(partial(self._trainer_built, seams, module)))
            seams.wrap(module.Trainer, "train", before(contained(partial(self._training, seams, module))))

    def _trainer_built(self, seams: Seams, module: ModuleType, _: Any, arguments: Arguments) -> None:
        """TrainingArguments that two trainers share have been changed for the first of them."""
        given = arguments.get("args")
        if given is None:
            given = arguments["args"] = module.TrainingArguments(output_dir="tmp_trainer")
        if self._met.first_time(given):
            seams.trainer(self._offered(given, arguments))

    def _offered(self, given: Any, arguments: Arguments) -> Trainer:
        growth: dict[str, float] = {}
        takes: dict[str, Callable[[Any], Undo]] = {
            "batch-size": partial(_batch_size, given, growth),
            "accumulate": partial(_accumulate, given, growth),
            "precision": partial(_precision, given),
            "log-every": lambda steps: attributes(given, logging_strategy=_steps(given), logging_steps=steps),
            "validate-every": partial(_validate_every, given),
            "checkpoint-every": partial(_checkpoint_every, given),
            "limit-validation": partial(_limit_validation, arguments),
        }
        return Trainer(self.id, takes, growth)

    def _training(self, seams: Seams, module: ModuleType, trainer: Any) -> None:
        if self._trained.first_time(trainer):
            callbacks = trainer.callback_handler.callbacks
            take = partial(_monitor_budget, seams, module.TrainerCallback, callbacks)
            seams.trainer(Trainer(self.id, {"monitor-budget": take}))


def _if_there_is_something_to_do(staged: Callable[..., Any]) -> Callable[..., Any]:
    """It is called after each step; only what it does then is logging."""
    plain: Callable[..., Any] = getattr(staged, "__wrapped__", staged)

    @wraps(staged)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked = self.control
        acts = asked.should_log or asked.should_evaluate or asked.should_save
        return (staged if acts else plain)(self, *args, **kwargs)

    return called


def _name(choice: Any) -> str:
    """Options are enumerations once the arguments have been read."""
    return str(getattr(choice, "value", choice))


def _steps(given: Any) -> Any:
    """`steps`, as this version's enumeration has it."""
    return type(given.logging_strategy)("steps")


def _batch_size(given: Any, growth: dict[str, float], size: int) -> Undo:
    growth["batch-size"] = size / given.per_device_train_batch_size
    return attributes(given, per_device_train_batch_size=size)


def _accumulate(given: Any, growth: dict[str, float], times: int) -> Undo:
    growth["accumulate"] = float(times)
    return attributes(given, gradient_accumulation_steps=given.gradient_accumulation_steps * times)


def _precision(given: Any, setting: Any) -> Undo:
    import os

    import torch

    half, brain = str(setting) == "16-mixed", str(setting) == "bf16-mixed"
    if half and not torch.cuda.is_available():
        raise CannotActError("the Trainer has no fp16 on a machine without a GPU: ask for bf16-mixed")
    mixed = "fp16" if half else "bf16" if brain else "no"
    undo = attributes(given, fp16=half, bf16=brain)
    if hasattr(given, "mixed_precision"):
        return together([undo, attributes(given, mixed_precision=mixed)])
    os.environ["ACCELERATE_MIXED_PRECISION"] = mixed  # where earlier versions look
    return undo


def _validate_every(given: Any, steps: int) -> Undo:
    if _name(given.eval_strategy) == "no":
        raise CannotActError("the script does not evaluate while it trains")
    undo = attributes(given, eval_strategy=type(given.eval_strategy)("steps"), eval_steps=steps)
    if not given.load_best_model_at_end:
        return undo
    # The best model can only be loaded if one is saved with each evaluation.
    saved = attributes(given, save_strategy=type(given.save_strategy)("steps"), save_steps=steps)
    return together([undo, saved])


def _checkpoint_every(given: Any, steps: int) -> Undo:
    if _name(given.save_strategy) == "no":
        raise CannotActError("the script saves no checkpoints")
    if given.load_best_model_at_end:
        raise CannotActError("load_best_model_at_end saves with each evaluation: set validate-every")
    return attributes(given, save_strategy=type(given.save_strategy)("steps"), save_steps=steps)


def _limit_validation(arguments: Arguments, share: float) -> Undo:
    given = arguments.get("eval_dataset")
    if given is None:
        raise CannotActError("the Trainer is given no evaluation set")
    cut = (
        {key: _first(each, share) for key, each in given.items()}
        if isinstance(given, dict)
        else _first(given, share)
    )
    return option(arguments, "eval_dataset", cut)


def _first(dataset: Any, share: float) -> Any:
    from torch.utils.data import Subset

    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise CannotActError("the evaluation set is a stream, whose length nobody knows")
    kept = range(max(1, int(len(dataset) * share)))
    return dataset.select(kept) if hasattr(dataset, "select") else Subset(dataset, kept)


def _monitor_budget(seams: Seams, base: type, callbacks: list[Any], share: float) -> Undo:
    return thin(callbacks, base, _WITH_EACH_STEP, share, seams.wrap)
