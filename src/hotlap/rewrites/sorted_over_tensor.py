"""Python's sorted over a tensor or an array.

What it is
    Each comparison makes a tensor of one element and asks for its truth: n log n calls into the library where one
    sorts them all.
Before
    best = sorted(scores, reverse=True)
After
    best = list(scores.sort(stable=True, descending=True).values)
    of `sorted(scores)[-1]`: scores.sort(stable=True).values[-1]
When it is the same
    Always: a list of the same elements in the same order. Equal ones stay in their order.
When it is not
    With NaN among the elements, whose place depends on the order of comparisons.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import TENSOR, Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import calls, local_name
from hotlap.source.values import full_name


class SortedOverTensor(Rewrite):
    id = "sorted-over-tensor"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for call in calls(function, "sorted"):
            value = seen.value(call.args[0]) if len(call.args) == 1 else None
            words = {each.arg: each.value for each in call.keywords}
            turned = words.pop("reverse", ast.Constant(False))
            plain = not words and isinstance(turned, ast.Constant)
            if value is None or not plain or value.shape is None or len(value.shape) != 1:
                continue
            numpy = local_name(function, "numpy")
            backwards = isinstance(turned, ast.Constant) and bool(turned.value)
            on_array = value.type != TENSOR and bool(numpy) and not backwards and value.dtype != "object"
            if value.type == TENSOR or on_array:
                yield Site(call, {"type": value.type, "size": value.size})

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        call = site.node
        assert isinstance(call, ast.Call)
        walked = call.args[0]
        if site.values["type"] == TENSOR:
            turned = any(each.arg == "reverse" and getattr(each.value, "value", 0) for each in call.keywords)
            words = "stable=True, descending=True" if turned else "stable=True"
            text = f"{function.primary(walked)}.sort({words}).values"
        else:
            text = f'{local_name(function, "numpy")}.sort({function.text(walked)}, kind="stable")'
        match function.parents.get(call):
            case ast.Subscript(value=value, slice=place) if value is call and _is_index(
                function, place, seen
            ):
                return (function.replace(call, text),)
            case ast.Subscript(value=value, slice=ast.Slice(step=None) as part) as some if value is call:
                return (function.replace(some, f"list({text}[{function.text(part)}])"),)
        return (function.replace(call, f"list({text})"),)


def _is_index(function: Function, node: ast.expr, seen: Seen) -> bool:
    """Whether it is a plain int, which tensors and lists understand alike."""
    match node:
        case ast.Constant(value=value):
            return type(value) is int
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return _is_index(function, inner, seen)
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv(), left=left, right=right):
            return _is_index(function, left, seen) and _is_index(function, right, seen)
        case ast.Call(func=called):
            return full_name(function.module, called) == "len"
    found = seen.value(node)
    return found is not None and found.type == "int"
