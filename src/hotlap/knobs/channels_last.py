"""Store images channel by channel last, as the fast convolutions want them.

What it does
    Lays the weights of convolutions out as `torch.channels_last`; activations follow. For 1-D convolutions torch has no
    such layout: on a CPU they are computed as images of one row. If the first forward does not bear it (a `.view()`
    that wants the other order), the layout is put back and that forward is redone.
When it helps
    2-D and 3-D convolutions in 16 bits on a GPU with tensor cores, and most convolutions on a CPU: 1-D ones most where
    channels are few and sequences many.
What it costs
    Nothing, but operators without a fast form for it convert back and forth.
Numerics
    Other kernels add up in another order: results differ by rounding. With dropout random masks fall on other
    elements, which only statistics can tell from a fault. Checkpoints hold the same values under the same keys.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Model, Patches, Reach, Seam, Undo, together
from hotlap.ports.values import Flag

_CONVOLUTIONS = ("conv2d", "conv3d", "convolution")


class ChannelsLast(Knob):
    id = "channels-last"
    relieves = frozenset({Cause.PRECISION_INEFFECTIVE})
    seam = Seam.MODEL
    numerics = Numerics.ROUNDING
    values = Flag()
    live = True

    def settings(self, host: Host, timeline: Timeline) -> tuple[bool, ...]:
        """Where convolutions were seen among the operators; where nobody looked, nothing is known of them."""
        tops = timeline.ops.top if timeline.ops else ()
        return (True,) if any(name in each.name for each in tops for name in _CONVOLUTIONS) else ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return summarise(timeline).share(Stage.FORWARD, Stage.BACKWARD)

    def numerics_at(self, target: Any, setting: Any) -> Numerics:
        """Random masks fall on other elements."""
        return Numerics.STATISTICAL if _draws(target.module) else Numerics.ROUNDING

    def apply(self, target: Model, setting: bool) -> Undo:
        if not setting:
            return lambda: None
        weights, rows = _weights(target.module), _has_rows(target.module)
        if not weights and not rows:
            raise CannotActError("it has no 2-D or 3-D convolution, and no 1-D one on a CPU")
        layout = _Layout(weights, target.reach)
        layout.lay(last=True)
        undo: list[Undo] = [functools.partial(layout.lay, last=False)]
        if rows:
            undo.append(_rows_as_images(target.patches))
        undo.append(target.reach.first_forward(target.module, self.id, off=False))
        return together(undo)


def _weights(module: Any) -> list[Any]:
    from torch import nn

    convolutions = (nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    return [each.weight for each in module.modules() if isinstance(each, convolutions)]


class _Layout:
    """Of convolutions' weights, and of what optimizers keep for each of them, which a fused step walks beside them."""

    def __init__(self, weights: list[Any], reach: Reach) -> None:
        import torch

        self.held = [weakref.ref(each) for each in weights if each.is_contiguous()]
        self.reach = reach
        self.formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        self.plain = torch.contiguous_format

    def lay(self, *, last: bool) -> None:
        weights = [weight for held in self.held if (weight := held()) is not None]
        for weight in weights:
            layout = self.formats[weight.dim()] if last else self.plain
            weight.data = weight.data.contiguous(memory_format=layout)
            if weight.grad is not None:
                weight.grad = weight.grad.contiguous(memory_format=layout)
            for optimizer in self.reach.optimizers():
                self._lay_state(optimizer.state.get(weight, {}), weight, layout)

    def _lay_state(self, state: dict[str, Any], weight: Any, layout: Any) -> None:
        for key, value in state.items():
            if getattr(value, "shape", None) == weight.shape:
                state[key] = value.contiguous(memory_format=layout)


def _has_rows(module: Any) -> bool:
    from torch import nn

    on_cpu = next(module.parameters()).device.type == "cpu"
    return on_cpu and any(isinstance(each, nn.Conv1d) for each in module.modules())


def _rows_as_images(patches: Patches) -> Undo:
    """For the class, not for single modules: nothing of it ends up in their state, pickles or copies."""
    import torch
    from torch import nn
    from torch.nn import functional

    def around(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def computed(self: Any, signal: Any, weight: Any, bias: Any) -> Any:
            if signal.dim() != 3 or signal.device.type != "cpu" or self.padding_mode != "zeros":
                return original(self, signal, weight, bias)
            image, kernel = (
                each.unsqueeze(2).contiguous(memory_format=torch.channels_last) for each in (signal, weight)
            )
            padding = self.padding if isinstance(self.padding, str) else (0, *self.padding)
            sizes: tuple[Any, ...] = (1, *self.stride), padding, (1, *self.dilation), self.groups
            return functional.conv2d(image, kernel, bias, *sizes).squeeze(2)

        return computed

    return patches.wrap(nn.Conv1d, "_conv_forward", around)


def _draws(module: Any) -> bool:
    """Whether it drops activations at random."""
    return any("Dropout" in type(each).__name__ and getattr(each, "p", 0.0) > 0 for each in module.modules())
