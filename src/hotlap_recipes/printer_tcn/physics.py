"""The motion of a belt-driven axis: the tool lags behind its reference like a mass on a damped spring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Signal = TypeVar("Signal", "torch.Tensor", NDArray[np.float64])


@dataclass(frozen=True)
class Belt:
    """m e'' + c e' + k e + F = 0, in mm and N, sampled every `dt` seconds.

    The defaults are a 0.5 kg carriage that rings at 25 Hz. At 400 Hz there are 16 samples in a period, enough
    for finite differences to explain the force within about 2 %.
    """

    mass: float = 5e-4
    damping: float = 0.032
    stiffness: float = 12.8
    dt: float = 2.5e-3


def residual(error: Signal, force: Signal, belt: Belt) -> Signal:
    """The force in N that the equation leaves unexplained, at the inner steps of (..., steps, axes)."""
    before, now, after = error[..., :-2, :], error[..., 1:-1, :], error[..., 2:, :]
    velocity = (after - before) / (2 * belt.dt)
    acceleration = (after - 2 * now + before) / belt.dt**2
    return belt.mass * acceleration + belt.damping * velocity + belt.stiffness * now + force[..., 1:-1, :]
