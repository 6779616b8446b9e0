"""What is drawn on the side leaves no trace in the script's random numbers."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from hotlap.sameness import random_states

DRAWS: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "Python": random.random,
    "a normal number of Python": lambda: random.gauss(0.0, 1.0),
    "NumPy": lambda: np.random.rand(3),
    "a normal number of NumPy": np.random.standard_normal,
    "another seed of NumPy": lambda: np.random.seed(5),
    "torch": lambda: torch.rand(3),
}


def _next() -> list[float]:
    return [
        random.random(),
        random.gauss(0.0, 1.0),
        *np.random.standard_normal(3),
        *np.random.rand(700),
        *torch.rand(3).tolist(),
    ]


@pytest.mark.parametrize("waiting", [0, 1], ids=["none waits", "a normal number waits"])
@pytest.mark.parametrize("name", DRAWS)
def test_whatever_is_drawn_leaves_no_trace(name: str, waiting: int) -> None:
    def numbers(draw: Callable[[], object]) -> list[float]:
        random_states.seed(3)
        np.random.standard_normal(waiting)
        with random_states.kept():
            draw()
        return _next()

    assert numbers(DRAWS[name]) == numbers(lambda: None)
