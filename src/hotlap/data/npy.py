"""NumPy's own file format in memory, with the head of equal arrays parsed once."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import Any

import numpy as np

_PREFIX = 10
"""Magic, version and length of the head of a version 1 file, which all but exotic arrays are."""


def to_npy(array: np.ndarray[Any, Any]) -> bytes:
    """The bytes of a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array, order="C"), allow_pickle=False)
    return buffer.getvalue()


def from_npy(content: memoryview) -> np.ndarray[Any, Any]:
    """The array, as a copy of its own."""
    if bytes(content[:8]) != b"\x93NUMPY\x01\x00":
        loaded: np.ndarray[Any, Any] = np.load(io.BytesIO(content), allow_pickle=False)
        return loaded
    start = _PREFIX + int.from_bytes(content[8:10], "little")
    shape, dtype, order = _head(bytes(content[:start]))
    array = np.frombuffer(content, dtype=dtype, offset=start, count=int(np.prod(shape)))
    return array.reshape(shape, order=order).copy(order="K")


@lru_cache(maxsize=4096)
def _head(prefix: bytes) -> tuple[tuple[int, ...], np.dtype[Any], Any]:
    file = io.BytesIO(prefix)
    np.lib.format.read_magic(file)
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject:
        raise ValueError("the array holds Python objects")
    return shape, dtype, "F" if fortran else "C"
