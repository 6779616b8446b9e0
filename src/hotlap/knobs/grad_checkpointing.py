"""Compute activations again in backward instead of keeping them.

What it does
    Turns gradient checkpointing of a Hugging Face model on. Else each block of the model is checkpointed: the
    children of an `nn.Sequential`, the items of an `nn.ModuleList`, the layers of a transformer.
When it helps
    Memory is short: it makes room for a larger batch.
What it costs
    About one more forward: a quarter to a third of the step.
Numerics
    None: random masks are drawn the same again. Blocks with batch norm are left out, since their running averages would
    be updated twice.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.timeline import Timeline
from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Model, Seam, Undo, together
from hotlap.ports.values import Flag

_LEAST_BLOCKS = 2
_FLAGS = frozenset(
    {"gradient_checkpointing", "_gradient_checkpointing_func", "_require_grads_hook", "_require_grads_hooks"}
)  # that transformers sets on modules


class GradCheckpointing(Knob):
    id = "grad-checkpointing"
    relieves = frozenset({Cause.MEMORY_HEADROOM})
    seam = Seam.MODEL
    numerics = Numerics.BITWISE
    values = Flag()
    live = True

    def settings(self, host: Host, timeline: Timeline) -> tuple[bool, ...]:
        """It saves memory, never time: nothing to try for speed alone."""
        return ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return 0.0

    def apply(self, target: Model, setting: bool) -> Undo:
        if not setting:
            return lambda: None
        for each in target.module.modules():
            if getattr(each, "supports_gradient_checkpointing", False):
                return _of_the_model(each)
        blocks = _blocks(target.module)
        if len(blocks) < _LEAST_BLOCKS:
            raise CannotActError(_reason(target.module))
        undo = [target.reach.around(each, _checkpointed, traced=True) for each in blocks]
        return together(undo)


def _of_the_model(model: Any) -> Undo:
    if any(getattr(each, "gradient_checkpointing", False) for each in model.modules()):
        raise CannotActError("the script checkpoints it already")
    before = [(weakref.ref(each), _flags(each)) for each in model.modules()]
    had_hooks = hasattr(model, "_require_grads_hook")
    _switch(model, "enable")
    held = weakref.ref(model)

    def undo() -> None:
        left = held()
        if left is None:
            return
        _switch(left, "disable")
        if not had_hooks and hasattr(left, "_require_grads_hook"):
            left.disable_input_require_grads()  # on the embeddings: transformers leaves them there
        for module, flags in before:
            _put_back(module(), flags)

    return undo


def _switch(model: Any, how: str) -> None:
    """By the name that newer versions of transformers have for it, where there is one."""
    newer = getattr(model, f"activation_checkpointing_{how}", None)
    (newer or getattr(model, f"gradient_checkpointing_{how}"))()


def _flags(module: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if name in _FLAGS}


def _put_back(module: Any, flags: dict[str, Any]) -> None:
    if module is not None:
        for name in _FLAGS - flags.keys():
            vars(module).pop(name, None)
        vars(module).update(flags)


def _blocks(module: Any) -> list[Any]:
    """The outermost blocks that follow each other and hold parameters."""
    from torch import nn

    found: list[Any] = []
    held: set[int] = set()
    for each in module.modules():
        if id(each) in held or not isinstance(each, nn.Sequential | nn.ModuleList):
            continue
        held.update(id(inner) for inner in each.modules())
        found += [child for child in each if _is_block(child)]
    return found


def _is_block(module: Any) -> bool:
    """Not a single layer: recomputing one saves next to nothing. Nor one that counts its calls in a buffer."""
    inner = list(module.modules())
    counts = any(hasattr(each, "running_mean") for each in inner)
    return len(inner) > 1 and not counts and next(module.parameters(), None) is not None


def _checkpointed(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    import torch
    from torch.utils.checkpoint import checkpoint

    if not torch.is_grad_enabled():
        return call(*args, **kwargs)
    return checkpoint(call, *args, use_reentrant=False, **kwargs)


def _reason(module: Any) -> str:
    if any(hasattr(each, "running_mean") for each in module.modules()):
        return "its blocks hold batch norm, whose running averages would be updated twice"
    return "it has no row of blocks (nn.Sequential or nn.ModuleList of modules with several layers)"
