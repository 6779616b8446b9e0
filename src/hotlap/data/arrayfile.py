"""A file of named facts and plain arrays, read in place: a JSON head, then every array on a cache line of its own."""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hotlap.data.samples import SampleError

Array = np.ndarray[Any, Any]
MAGIC = b"HOTLAPA1"
ALIGN = 64
"""A cache line, so that arrays of any type may be viewed in place."""


def write_arrays(path: Path, head: Mapping[str, Any], arrays: Sequence[Array]) -> None:
    """Write the file; the same content gives the same bytes."""
    described, at = [], 0
    for array in arrays:
        described.append({"dtype": array.dtype.str, "shape": list(array.shape), "at": at})
        at += -(-array.nbytes // ALIGN) * ALIGN
    text = json.dumps({"head": head, "arrays": described}, sort_keys=True).encode()
    text += b" " * (-(len(text) + len(MAGIC) + 8) % ALIGN)
    with path.open("wb") as file:
        file.write(MAGIC + len(text).to_bytes(8, "little") + text)
        for array in arrays:
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            file.write(bytes(-array.nbytes % ALIGN))


def read_arrays(path: Path) -> tuple[dict[str, Any], list[Array]]:
    """The head, and read-only views of the arrays in the mapped file."""
    try:
        with path.open("rb") as file:
            view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if view[: len(MAGIC)] != MAGIC:
            raise ValueError(f"it begins with {view[:8]!r}")
        base = 16 + int.from_bytes(view[8:16], "little")
        described = json.loads(view[16:base])
        return described["head"], [_array(view, base, **each) for each in described["arrays"]]
    except (ValueError, KeyError, TypeError) as error:
        raise SampleError(f"{path} is damaged: {error}.", "pack it again") from None


def _array(view: mmap.mmap, base: int, dtype: str, shape: list[int], at: int) -> Array:
    count = int(np.prod(shape))
    if count == 0:
        return np.empty(shape, dtype=dtype)
    return np.frombuffer(view, dtype=dtype, count=count, offset=base + at).reshape(shape)
