"""Sizes and types of an operator's inputs in a torch.profiler trace, as short texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_MOST_INPUTS = 3
_MOST_IN_LIST = 2
_NAMES = {
    "float": "float32",
    "double": "float64",
    "c10::BFloat16": "bfloat16",
    "c10::Half": "float16",
    "long int": "int64",
    "int": "int32",
    "unsigned char": "uint8",
}
_NO_TENSOR = ("", "Scalar", "ScalarList", "TensorList", "GenericList", "Device", "Scalar[]")


def shapes(event: Mapping[str, Any]) -> str:
    """`64x512 512x10`; a list of tensors is `[64]*16`, or `[512x64 512 +2]` with the number of further ones."""
    inputs = event.get("args", {}).get("Input Dims", [])[:_MOST_INPUTS]
    return " ".join(_input(each) for each in inputs if each)


def dtype(event: Mapping[str, Any]) -> str:
    """The type of the first tensor, as torch calls it; nothing where there is none."""
    types = event.get("args", {}).get("Input type", [])
    first = next((kind for kind in types if kind not in _NO_TENSOR), "")
    return _NAMES.get(first, first)


def _input(sizes: Sequence[Any]) -> str:
    return _list([_one(each) for each in sizes]) if isinstance(sizes[0], list) else _one(sizes)


def _one(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes)) or "1"


def _list(tensors: Sequence[str]) -> str:
    if len(set(tensors)) == 1:
        return f"[{tensors[0]}]*{len(tensors)}"
    further = len(tensors) - _MOST_IN_LIST
    return f"[{' '.join(tensors[:_MOST_IN_LIST])}{f' +{further}' if further > 0 else ''}]"
