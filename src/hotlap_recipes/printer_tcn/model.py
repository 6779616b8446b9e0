"""The network (a temporal convolutional network) and its loss (data and physics)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from hotlap_recipes.printer_tcn import ERRORS, FORCES, INPUTS, STATES
from hotlap_recipes.printer_tcn.dataset import Item, Scalers
from hotlap_recipes.printer_tcn.physics import Belt, residual

KERNEL = 3
DILATIONS = (1, 2, 4)
WIDTHS = {"tiny": (8, 8, 8), "base": (128, 128, 256)}


class CausalConv(nn.Conv1d):
    """Padded on the left alone: step t sees steps up to t."""

    def __init__(self, channels_in: int, channels_out: int, dilation: int) -> None:
        super().__init__(channels_in, channels_out, KERNEL, dilation=dilation)
        self.reach = (KERNEL - 1) * dilation

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        return super().forward(functional.pad(signal, (self.reach, 0)))


class Block(nn.Module):
    def __init__(self, channels_in: int, channels_out: int, dilation: int) -> None:
        super().__init__()
        self.first = CausalConv(channels_in, channels_out, dilation)
        self.second = CausalConv(channels_out, channels_out, dilation)
        self.skip = nn.Identity() if channels_in == channels_out else nn.Conv1d(channels_in, channels_out, 1)

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        inner = functional.relu(self.second(functional.relu(self.first(signal))))
        return functional.relu(inner + self.skip(signal))


class PrinterTCN(nn.Module):
    """Inputs (batch, steps, 12) to states (batch, steps, 5) and errors (batch, steps, 2), all normalised."""

    def __init__(self, size: str = "base") -> None:
        super().__init__()
        widths = WIDTHS[size]
        channels = zip((len(INPUTS), *widths), widths, DILATIONS, strict=False)
        self.blocks = nn.Sequential(*(Block(*shape) for shape in channels))
        self.head = nn.Conv1d(widths[-1], len(STATES) + len(ERRORS), 1)

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outputs = self.head(self.blocks(inputs.transpose(1, 2))).transpose(1, 2)
        return outputs[..., : len(STATES)], outputs[..., len(STATES) :]


class Losses(NamedTuple):
    total: torch.Tensor
    data: torch.Tensor
    physics: torch.Tensor


class PrinterLoss(nn.Module):
    """The mean squared error of the outputs, plus `lambda_physics` times that of the equation of motion.

    The equation holds in mm and N, so error and force are put back into these units first. Its residual is
    then counted in standard deviations of the force, so that a weight means the same on every machine.
    """

    error_mean: torch.Tensor
    error_std: torch.Tensor
    force_mean: torch.Tensor
    force_std: torch.Tensor

    def __init__(self, scalers: Scalers, belt: Belt, lambda_physics: float) -> None:
        super().__init__()
        self.belt = belt
        self.lambda_physics = lambda_physics
        for name, values in {
            "error_mean": scalers.errors.mean_,
            "error_std": scalers.errors.scale_,
            "force_mean": scalers.inputs.mean_[FORCES],
            "force_std": scalers.inputs.scale_[FORCES],
        }.items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32))

    def forward(self, outputs: tuple[torch.Tensor, torch.Tensor], batch: Item) -> Losses:
        inputs, states, errors = batch
        # Second differences magnify rounding by 1 / dt^2: never take them in half precision.
        inferred_states, inferred_errors = (output.float() for output in outputs)
        data = functional.mse_loss(
            torch.cat((inferred_states, inferred_errors), dim=-1), torch.cat((states, errors), dim=-1)
        )
        physics = self.unexplained_force(inferred_errors, inputs).square().mean()
        return Losses(data + self.lambda_physics * physics, data, physics)

    def unexplained_force(self, errors: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        error_mm = errors * self.error_std + self.error_mean
        force_n = inputs[..., FORCES] * self.force_std + self.force_mean
        return residual(error_mm, force_n, self.belt) / self.force_std
