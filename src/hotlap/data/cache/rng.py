"""The random numbers that everybody in a process shares: Python's, NumPy's and torch's."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

States = tuple[Any, Any, Any]


def states() -> States:
    return random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state()


def seed(number: int) -> None:
    random.seed(number)
    np.random.seed(number)
    torch.default_generator.manual_seed(number)


def restore(saved: States) -> None:
    random.setstate(saved[0])
    np.random.set_state(saved[1])
    torch.set_rng_state(saved[2])


def moved(before: States) -> str:
    """Whose random numbers somebody has drawn since; nothing where nobody has."""
    now = states()
    if before[0] != now[0]:
        return "Python"
    if not _same(before[1], now[1]):
        return "NumPy"
    return "" if torch.equal(before[2], now[2]) else "torch"


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return all(_same(one[key], two[key]) for key in one)
    return bool(np.array_equal(one, two))
