"""Bit-equality of two dumps of a loop: parameters and random states."""

from __future__ import annotations

from typing import Any

import torch


def same(one: str, two: str) -> bool:
    """Whether two files written by torch.save hold the same values, to the last bit."""
    return equal(torch.load(one, weights_only=False), torch.load(two, weights_only=False))


def equal(one: Any, two: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return bool(torch.equal(one, two))
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(equal(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(equal(left, right) for left, right in zip(one, two, strict=True))
    return bool((one == two).all()) if hasattr(one, "all") else bool(one == two)
