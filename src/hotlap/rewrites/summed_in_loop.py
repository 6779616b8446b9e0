"""A loop that adds up the elements of a tensor or an array.

What it is
    Each turn makes a tensor of one element and adds it in Python: a microsecond or more an element.
Before
    for x in samples:
        total += x * x
After
    total += (samples * samples).sum()
When it is the same
    Up to rounding: the numbers are added in another order. Whole numbers are the same.
When it is not
    Where the loop does anything else; then it is not recognised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import replaced, starts_its_line, uses

_PLAIN = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)


class SummedInLoop(Rewrite):
    id = "summed-in-loop"
    numerics = Numerics.ROUNDING

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for node in function.walk():
            match node:
                case ast.For(
                    target=ast.Name() as each,
                    iter=ast.Name() | ast.Attribute() as walked,
                    body=[ast.AugAssign(target=ast.Name() as total, op=ast.Add(), value=added)],
                    orelse=[],
                ):
                    value = seen.value(walked)
                case _:
                    continue
            flat = value is not None and value.shape is not None and len(value.shape) == 1
            apart = (
                uses(added, total.id) == 0
                and uses(added, each.id) > 0
                and _used_later(function, node, each.id) == 0
            )
            if (
                value is not None
                and flat
                and apart
                and _is_elementwise(added, each.id, seen)
                and starts_its_line(function, node)
            ):
                yield Site(node, {"type": value.type, "size": value.size})

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        loop = site.node
        assert isinstance(loop, ast.For)
        added = loop.body[0]
        assert isinstance(added, ast.AugAssign)
        name = loop.target.id  # type: ignore[attr-defined]
        here = [node for node in ast.walk(added.value) if isinstance(node, ast.Name) and node.id == name]
        text = replaced(added.value, function, dict.fromkeys(here, function.text(loop.iter)))
        plain = isinstance(added.value, ast.Name | ast.Attribute | ast.Subscript | ast.Call)
        whole = text if plain else f"({text})"
        return (function.replace(loop, f"{function.text(added.target)} += {whole}.sum()"),)


def _used_later(function: Function, loop: ast.For, name: str) -> int:
    return uses(function.node, name) - uses(loop, name)


def _is_elementwise(node: ast.expr, name: str, seen: Seen) -> bool:
    """Arithmetic of the element with numbers: for each element the same as for all at once."""
    match node:
        case ast.Name():
            value = seen.value(node) if node.id != name else None
            return node.id == name or (value is not None and value.type in ("int", "float"))
        case ast.Constant():
            return isinstance(node.value, int | float)
        case ast.BinOp():
            fine = isinstance(node.op, _PLAIN)
            return fine and _is_elementwise(node.left, name, seen) and _is_elementwise(node.right, name, seen)
        case ast.UnaryOp(op=ast.USub()):
            return _is_elementwise(node.operand, name, seen)
        case ast.Call(func=ast.Name(id="abs"), args=[only], keywords=[]):
            return _is_elementwise(only, name, seen)
        case ast.Call(
            func=ast.Attribute(attr="abs" | "square" | "sqrt" | "exp", value=owner), args=[], keywords=[]
        ):
            return isinstance(owner, ast.Name) and owner.id == name
    return False
