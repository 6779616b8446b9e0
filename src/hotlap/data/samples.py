"""A sample as fields, and back: nested items are flattened to named fields, and restored from a template."""

from __future__ import annotations

import json
import mmap
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hotlap.errors import HotlapError

Fields = dict[str, Any]
SCALARS = (str, int, float, bool, type(None))


class SampleError(HotlapError):
    """A sample cannot be stored, read or decoded."""


def flatten(item: Any) -> tuple[Fields, Any]:
    """The leaves of an item by name, and the template from which `restore` builds an equal item."""
    fields: Fields = {}
    return fields, _flatten(item, "", fields)


def restore(fields: Mapping[str, Any], template: Any) -> Any:
    """The item of which `flatten` made these fields."""
    return _restore(fields, template, "")


def checksum(fields: Mapping[str, Any]) -> int:
    """A CRC-32 of all names and contents, whatever the format they are stored in."""
    value = 0
    for name in sorted(fields):
        content = fields[name]
        value = zlib.crc32(f"{name}\0{_kind(content)}\0".encode(), value)
        value = zlib.crc32(_bytes_of(content), value)
    return value


def size_of(fields: Mapping[str, Any]) -> int:
    """Bytes of the contents."""
    return sum(
        each.nbytes if isinstance(each, np.ndarray) else len(_bytes_of(each)) for each in fields.values()
    )


def plain_value(value: Any) -> bool:
    """Whether JSON gives this value back as it was."""
    if isinstance(value, dict):
        return all(type(key) is str and plain_value(each) for key, each in value.items())
    if type(value) is list:
        return all(plain_value(each) for each in value)
    return type(value) in SCALARS


def _flatten(item: Any, name: str, fields: Fields) -> Any:
    if isinstance(item, dict) and item and all(type(key) is str for key in item):
        return {
            "dict": {key: _flatten(each, _joined(name, _checked(key)), fields) for key, each in item.items()}
        }
    if type(item) in (tuple, list) and item and not (type(item) is list and plain_value(item)):
        parts = [_flatten(each, _joined(name, str(index)), fields) for index, each in enumerate(item)]
        return {type(item).__name__: parts}
    fields[name or "item"], leaf = _leaf(item, name or "item")
    return leaf


def _restore(fields: Mapping[str, Any], template: Any, name: str) -> Any:
    if isinstance(template, str):
        return _leaf_back(fields[name or "item"], template)
    ((kind, parts),) = template.items()
    if kind == "dict":
        return {key: _restore(fields, each, _joined(name, key)) for key, each in parts.items()}
    items = [_restore(fields, each, _joined(name, str(index))) for index, each in enumerate(parts)]
    return tuple(items) if kind == "tuple" else items


def _leaf(value: Any, name: str) -> tuple[Any, str]:
    """What is stored for a value, and what it must become again."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, np.ndarray):
        return value, "array"
    if isinstance(value, np.generic):
        return np.asarray(value), "numpy scalar"
    if kind in ("torch.Tensor", "torch.nn.parameter.Parameter"):
        return _tensor_as_array(value, name), "tensor"
    if isinstance(value, bytes) or plain_value(value):
        return value, "value"
    if kind.startswith("PIL."):
        return np.asarray(value), "picture"
    raise SampleError(
        f"field '{name}' is a {kind}, which no shard format stores.",
        "return arrays, tensors, bytes, text, numbers, or tuples, lists and dicts of them",
    )


def _tensor_as_array(value: Any, name: str) -> np.ndarray[Any, Any]:
    try:
        array: np.ndarray[Any, Any] = value.detach().cpu().numpy()
    except TypeError:
        what = f"field '{name}' is a tensor of {value.dtype}, which NumPy does not know."
        raise SampleError(what, "convert it: tensor.float()") from None
    return array


def _leaf_back(value: Any, kind: str) -> Any:
    if kind == "tensor":
        import torch

        return torch.from_numpy(value)
    if kind == "picture":
        from PIL import Image

        return Image.fromarray(value)
    if kind == "numpy scalar":
        return value[()]
    return bytes(value) if isinstance(value, memoryview) else value


def _joined(name: str, part: str) -> str:
    return f"{name}.{part}" if name else part


def _checked(key: str) -> str:
    if not key or any(each in key for each in "./\0"):
        raise SampleError(f"a field is called '{key}'.", "give it a name without dots and slashes")
    return key


def _kind(content: Any) -> str:
    if isinstance(content, np.ndarray):
        return f"{content.dtype.str}{content.shape}"
    return "bytes" if isinstance(content, bytes | memoryview) else "json"


def _bytes_of(content: Any) -> Any:
    if isinstance(content, np.ndarray):
        return np.ascontiguousarray(content).reshape(-1).view(np.uint8)
    if isinstance(content, bytes | memoryview):
        return content
    return json.dumps(content, sort_keys=True).encode()


# A file of named facts and plain arrays, read in place: a JSON head, then every array on a cache line of its own.


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
