"""The random numbers that everybody in a process shares: Python's, torch's and, where it is loaded, NumPy's."""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_MT19937_BYTES = 4 * 624 + 4  # its key and the place in it

States = tuple[Any, Any, Any]


def states() -> States:
    numpy = _numpy()
    drawn = numpy.get_state(legacy=False) if numpy is not None else None
    return random.getstate(), drawn, torch.default_generator.get_state()


def seed(number: int) -> None:
    random.seed(number)
    if (numpy := _numpy()) is not None:
        numpy.seed(number)
    torch.default_generator.manual_seed(number)


def restore(saved: States) -> None:
    random.setstate(saved[0])
    if saved[1] is not None:
        sys.modules["numpy"].random.set_state(saved[1])
    torch.default_generator.set_state(saved[2])


@contextmanager
def kept() -> Iterator[None]:
    """Whatever is drawn inside leaves no trace. NumPy takes 50 us to set a state, so it is set where it has moved."""
    saved, drawn = states(), _drawn_of_numpy()
    try:
        yield
    finally:
        # A normal number may be waiting to be given (`has_gauss`), which moves nothing else.
        still = drawn and drawn == _drawn_of_numpy() and not saved[1]["has_gauss"]
        restore((saved[0], None, saved[2]) if still else saved)


def _drawn_of_numpy() -> bytes:
    """The memory of NumPy's generator, which every draw moves; empty where it is another kind than usual."""
    numpy = _numpy()
    generator = numpy.get_bit_generator() if hasattr(numpy, "get_bit_generator") else None
    if generator is None or type(generator).__name__ != "MT19937":
        return b""
    return ctypes.string_at(generator.ctypes.state_address, _MT19937_BYTES)


def moved(before: States) -> str:
    """Whose random numbers somebody has drawn since; nothing where nobody has."""
    now = states()
    if before[0] != now[0]:
        return "Python"
    if before[1] is not None and not _same(before[1], now[1]):
        return "NumPy"
    return "" if torch.equal(before[2], now[2]) else "torch"


def _numpy() -> Any:
    return getattr(sys.modules.get("numpy"), "random", None)


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return all(_same(one[key], two[key]) for key in one)
    return bool(sys.modules["numpy"].array_equal(one, two))
