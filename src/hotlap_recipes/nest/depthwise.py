"""The depthwise convolutions of the subsampling, in half precision on a CPU.

Their gradients take torch far longer in bf16 than in single precision. So they are computed in single precision,
in spans of frames that fit a cache: of a whole batch they would be the largest blocks of memory in a step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_SPAN_BYTES = 4 * 2**20
_WINDOW, _STRIDE, _PADDING = (3, 3), (2, 2), (1, 1)  # of NeMo's dw_striding


def convolved(hidden: Tensor, layer: nn.Conv2d) -> Tensor:
    """The layer, with its channels last."""
    weight = layer.weight.contiguous(memory_format=torch.channels_last)
    if _is_slow(hidden, layer):
        out: Tensor = HalfDepthwise.apply(hidden, weight, layer.bias)  # type: ignore[no-untyped-call]
        return out
    return functional.conv2d(
        hidden, weight, layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups
    )


def _is_slow(hidden: Tensor, layer: nn.Conv2d) -> bool:
    is_known = (layer.kernel_size, layer.stride, layer.padding) == (_WINDOW, _STRIDE, _PADDING)
    is_half = hidden.dtype is torch.bfloat16 and hidden.device.type == "cpu"
    return is_half and is_known and layer.groups > 1 and not torch.compiler.is_compiling()


class HalfDepthwise(torch.autograd.Function):
    """bf16 forward, gradients by way of fp32."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(hidden, weight)
        ctx.of_bias = None if bias is None else bias.dtype
        half = None if bias is None else bias.to(hidden.dtype)
        with torch.autocast("cpu", enabled=False):
            return functional.conv2d(
                hidden, weight.to(hidden.dtype), half, _STRIDE, _PADDING, groups=hidden.shape[1]
            )

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        hidden, weight = ctx.saved_tensors
        whole = weight.float()
        into, of_weight = torch.empty_like(hidden), torch.zeros_like(whole)
        for row in range(len(hidden)):
            of_weight += _back(gradient[row : row + 1], hidden[row : row + 1], whole, into[row : row + 1])
        of_bias = None
        if ctx.of_bias is not None:
            of_bias = gradient.sum((0, 2, 3), dtype=torch.float32).to(ctx.of_bias)
        return into, of_weight.to(weight.dtype), of_bias


def _back(gradient: Tensor, hidden: Tensor, weight: Tensor, into: Tensor) -> Tensor:
    """Writes the gradient of one row `into` its place, and returns its part of the weight's.

    Frame t of the output sees 2t-1 to 2t+1 of the input: two neighbouring spans share one.
    """
    _, channels, frames, bands = hidden.shape
    span = max(1, _SPAN_BYTES // (2 * bands * channels * weight.element_size()))
    of_weight, shared = torch.zeros_like(weight), None
    for first in range(0, gradient.shape[2], span):
        its = gradient[:, :, first : first + span].float()
        begin, end = 2 * first - 1, 2 * (first + its.shape[2])
        inside = slice(max(0, begin), min(frames, end))
        seen = hidden[:, :, inside].float()
        if begin < 0 or end > frames:
            seen = functional.pad(seen, (0, 0, max(0, -begin), max(0, end - frames)))
        back, part, _ = torch.ops.aten.convolution_backward(
            its, seen, weight, None, _STRIDE, (0, 1), (1, 1), False, (0, 0), channels, [True, True, False]
        )
        if shared is not None:
            back[:, :, :1] += shared
        into[:, :, inside] = back[:, :, inside.start - begin : inside.stop - begin]
        shared = back[:, :, -1:]
        of_weight += part
    return of_weight
