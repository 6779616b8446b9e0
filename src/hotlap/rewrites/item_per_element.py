"""Numbers taken out of a tensor one by one.

What it is
    Each `.item()`, `float(x)` or `int(x)` makes a tensor of one element and copies it out; on a device the host waits
    for each of them.
Before
    values = [x.item() for x in scores]
After
    values = scores.tolist()
When it is the same
    Always: the same Python numbers in the same order.
When it is not
    Where the numbers are computed from before they are collected; then it is not recognised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site, Value
from hotlap.rewrites import only_argument, starts_its_line
from hotlap.source.values import full_name

_KINDS = {
    "float": ("float64", "float32", "float16", "bfloat16"),
    "int": ("int64", "int32", "int16", "int8", "uint8"),
}


class ItemPerElement(Rewrite):
    id = "item-per-element"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for node in function.walk():
            match node:
                case ast.ListComp(generators=[ast.comprehension(ifs=[], is_async=0) as loop]):
                    element, target, walked = node.elt, loop.target, loop.iter
                case ast.For(
                    body=[ast.Expr(value=ast.Call(func=ast.Attribute(attr="append")) as call)], orelse=[]
                ):
                    given = only_argument(call)
                    if given is None or not starts_its_line(function, node):
                        continue
                    element, target, walked = given, node.target, node.iter
                case _:
                    continue
            value = seen.value(walked)
            flat = value is not None and value.shape is not None and len(value.shape) == 1
            if (
                value is not None
                and flat
                and seen.is_tensor(walked, or_array=True)
                and _is_item(function, element, target, value)
            ):
                yield Site(node, {"type": value.type, "size": value.size})

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        node = site.node
        if isinstance(node, ast.ListComp):
            return (function.replace(node, f"{function.primary(node.generators[0].iter)}.tolist()"),)
        assert isinstance(node, ast.For)
        call = node.body[0].value  # type: ignore[attr-defined]
        owner = function.text(call.func.value)
        return (function.replace(node, f"{owner}.extend({function.primary(node.iter)}.tolist())"),)


def _is_item(function: Function, element: ast.expr, target: ast.expr, value: Value) -> bool:
    """`x.item()`, or `float(x)` of floating-point numbers, where x is the element."""
    match element:
        case ast.Call(func=ast.Attribute(attr="item", value=ast.Name() as owner), args=[], keywords=[]):
            return isinstance(target, ast.Name) and owner.id == target.id
        case ast.Call(func=ast.Name(), args=[ast.Name() as owner], keywords=[]):
            name = full_name(function.module, element.func)
            return (
                isinstance(target, ast.Name) and owner.id == target.id and value.dtype in _KINDS.get(name, ())
            )
    return False
