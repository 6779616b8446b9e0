"""Update all parameters in one pass instead of tensor by tensor.

What it does
    Sets `fused` (or `foreach`) on the groups of a torch optimizer, also after `load_state_dict`. `true` means
    fused. What the optimizer saves says nothing of it.
When it helps
    The `optimizer` stage is exposed: many small tensors, or a large model on a GPU.
What it costs
    Nothing for `fused`; `foreach` needs memory for one more copy of the parameters while it steps.
Numerics
    `foreach` is bit-equal to the loop over tensors. `fused` differs in the last bit or two.
"""

from __future__ import annotations

import weakref
from typing import Any

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Optimizer, Seam, Undo
from hotlap.ports.values import Choice

_FUSABLE = frozenset({"Adam", "AdamW", "SGD", "Adagrad"})
_OF_FUSED = frozenset({"_need_device_dtype_check_for_fused"})  # a fused step sets it on its optimizer
_WAYS = {"fused": (True, False), "foreach": (False, True), "off": (False, False)}


class FusedOptimizer(Knob):
    id = "fused-optimizer"
    relieves = frozenset({Cause.OPTIMIZER_UNFUSED})
    seam = Seam.OPTIMIZER
    numerics = Numerics.ROUNDING
    values = Choice(("fused", "foreach", "off"), {"on": "fused", "true": "fused", "false": "off"})
    live = True

    def settings(self, host: Host, timeline: Timeline) -> tuple[str, ...]:
        unfused = [each for each in timeline.optimizers if each.kind in _FUSABLE and not each.fused]
        return ("fused", "foreach") if unfused else ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return summarise(timeline).share(Stage.OPTIMIZER)

    def numerics_at(self, target: Any, setting: Any) -> Numerics:
        return Numerics.ROUNDING if setting == "fused" else Numerics.BITWISE

    def apply(self, target: Optimizer, setting: str) -> Undo:
        _refuse(target.optimizer, setting)
        return _Way(target, setting).take()


def _refuse(optimizer: Any, setting: str) -> None:
    kind = type(optimizer)
    if setting not in optimizer.defaults and setting != "off":
        raise CannotActError(f"{kind.__name__} has no form that is {setting}")
    if not (kind.step.__module__ or "").startswith("torch.optim"):
        raise CannotActError(f"{kind.__name__} makes its step in its own way")
    if any(group.get("differentiable") for group in optimizer.param_groups) and setting != "off":
        raise CannotActError("a differentiable optimizer has only the loop")
    if setting == "fused":
        _refuse_tensors([each for group in optimizer.param_groups for each in group["params"]])


def _refuse_tensors(parameters: list[Any]) -> None:
    from torch.utils._foreach_utils import _get_fused_kernels_supported_devices

    allowed = _get_fused_kernels_supported_devices()
    for each in parameters:
        if each.device.type not in allowed or not each.dtype.is_floating_point:
            raise CannotActError(f"a fused step does not take {each.dtype} on {each.device.type}")


class _Way:
    """One optimizer stepping in another way than it was built for."""

    def __init__(self, target: Optimizer, setting: str) -> None:
        self.held = weakref.ref(target.optimizer)
        self.withdraw = target.withdraw
        self.fused, self.foreach = _WAYS[setting]
        groups = self.optimizer.param_groups
        self.before = [(group.get("fused"), group.get("foreach")) for group in groups]
        self.hooks: list[Any] = []
        self.looked, self.acts = False, True
        self.own = set(vars(target.optimizer))

    @property
    def optimizer(self) -> Any:
        return self.held()

    def take(self) -> Undo:
        self.set_groups()
        optimizer = self.optimizer
        self.hooks = [
            optimizer.register_state_dict_post_hook(self.as_built),
            optimizer.register_load_state_dict_pre_hook(self.as_set),
        ]
        if self.fused:
            self.hooks.append(optimizer.register_step_pre_hook(self.look_at_gradients))
        return self.undo

    def set_groups(self) -> None:
        for group in self.optimizer.param_groups:
            group.update(self._kept(group, self.fused, self.foreach))
        self._place_counters(on_device=self.fused)

    def undo(self) -> None:
        for hook in self.hooks:
            hook.remove()
        if self.hooks and self.optimizer is not None:
            self.hooks = []
            self.set_back()

    def set_back(self) -> None:
        if self.acts:
            self.acts = False
            for group, (fused, foreach) in zip(self.optimizer.param_groups, self._befores(), strict=True):
                group.update(self._kept(group, fused, foreach))
            self._place_counters(on_device=any(fused for fused, _ in self.before))
            for name in _OF_FUSED - self.own:
                vars(self.optimizer).pop(name, None)

    def look_at_gradients(self, optimizer: Any, *_: Any) -> None:
        """Once, at the first step: a fused step would end the script at a sparse gradient."""
        if self.looked:
            return  # a hook cannot be taken away here: torch is going through them
        self.looked = True
        gradients = [each.grad for group in optimizer.param_groups for each in group["params"]]
        if any(each is not None and each.is_sparse for each in gradients):
            self.set_back()
            self.withdraw(FusedOptimizer.id, "it has sparse gradients, which a fused step does not take")

    def as_built(self, _: Any, state: dict[str, Any]) -> dict[str, Any]:
        """What is saved is what the script alone would save."""
        if not self.acts:
            return state
        for group, (fused, foreach) in zip(state["param_groups"], self._befores(), strict=True):
            group.update(self._kept(group, fused, foreach))
        if any(group.get("capturable") for group in state["param_groups"]):
            return state
        counters = {key: each for key, each in state["state"].items() if hasattr(each.get("step"), "cpu")}
        moved = {key: {**each, "step": each["step"].cpu()} for key, each in counters.items()}
        return {**state, "state": state["state"] | moved}

    def as_set(self, _: Any, state: dict[str, Any]) -> dict[str, Any]:
        if not self.acts:
            return state
        groups = [{**group, **self._kept(group, self.fused, self.foreach)} for group in state["param_groups"]]
        return {**state, "param_groups": groups}

    def _befores(self) -> list[tuple[Any, Any]]:
        """Groups that were added later are as the first one was."""
        more = len(self.optimizer.param_groups) - len(self.before)
        return self.before + self.before[:1] * more

    @staticmethod
    def _kept(group: dict[str, Any], fused: Any, foreach: Any) -> dict[str, Any]:
        ways = {"fused": fused, "foreach": foreach}
        return {key: value for key, value in ways.items() if key in group}

    def _place_counters(self, *, on_device: bool) -> None:
        """A fused step counts its steps beside the parameters, the others count on the host."""
        from torch.optim.optimizer import _get_scalar_dtype

        scalar: Any = _get_scalar_dtype
        if any(group.get("capturable") for group in self.optimizer.param_groups):
            return
        for parameter, state in self.optimizer.state.items():
            if hasattr(state.get("step"), "to"):
                state["step"] = state["step"].to(parameter.device if on_device else "cpu", scalar(on_device))
