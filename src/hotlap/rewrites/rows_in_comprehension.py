"""Rows computed one by one and put together again.

What it is
    `np.stack([row / 255 for row in frames])` makes an array for each row, and copies all of them; arithmetic on the
    whole is one call.
Before
    x = np.stack([frame / 255 - mean for frame in frames])
After
    x = frames / 255 - mean
When it is the same
    Sums, differences, products and quotients with numbers are the same bits. Powers and functions may be rounded
    differently.
When it is not
    Where a row depends on another one, or on its number; then it is not recognised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import ARRAY, TENSOR, Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import calls, is_number, only_argument, replaced, uses
from hotlap.source.values import full_name

_JOINS = {"torch.stack": TENSOR, "numpy.stack": ARRAY, "numpy.array": ARRAY}
_EXACT = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_FUNCTIONS = ("abs", "sqrt", "exp", "log", "log1p", "tanh", "square", "sin", "cos")


class RowsInComprehension(Rewrite):
    id = "rows-in-comprehension"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for call in calls(function, *_JOINS):
            match only_argument(call):
                case ast.ListComp(
                    elt=ast.BinOp() | ast.Call() as made,
                    generators=[
                        ast.comprehension(
                            target=ast.Name(id=row),
                            iter=ast.Name() | ast.Attribute() as walked,
                            ifs=[],
                            is_async=0,
                        )
                    ],
                ):
                    value = seen.value(walked)
                case _:
                    continue
            of = _JOINS[full_name(function.module, call.func)]
            if value is None or value.type != of or not value.shape or value.dtype == "object":
                continue
            if uses(made, row) and _is_elementwise(function, made, row, seen):
                exact = not any(isinstance(each, ast.Call | ast.Pow) for each in ast.walk(made))
                numerics = Numerics.BITWISE if exact else Numerics.ROUNDING
                yield Site(call, {"type": value.type, "size": value.size}, numerics)

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        call = site.node
        assert isinstance(call, ast.Call)
        made = call.args[0]
        assert isinstance(made, ast.ListComp)
        loop = made.generators[0]
        name = loop.target.id  # type: ignore[attr-defined]
        rows = [each for each in ast.walk(made.elt) if isinstance(each, ast.Name) and each.id == name]
        text = replaced(made.elt, function, dict.fromkeys(rows, function.text(loop.iter)))
        whole = text if isinstance(made.elt, ast.Call) else f"({text})"
        stacked = ".contiguous()" if site.values["type"] == TENSOR else ""  # as stack returns it
        return (function.replace(call, whole + stacked),)


def _is_elementwise(function: Function, node: ast.expr, row: str, seen: Seen) -> bool:
    match node:
        case ast.Name(id=name) if name == row:
            return True
        case ast.BinOp():
            fine = isinstance(node.op, (*_EXACT, ast.Pow))
            both = all(_is_elementwise(function, each, row, seen) for each in (node.left, node.right))
            return fine and both
        case ast.UnaryOp(op=ast.USub()):
            return _is_elementwise(function, node.operand, row, seen)
        case ast.Call(func=ast.Attribute(attr=name, value=ast.Name(id=owner)), args=[], keywords=[]) if (
            owner == row
        ):
            return name in _FUNCTIONS
        case ast.Call(args=[only], keywords=[]):
            package, _, name = full_name(function.module, node.func).rpartition(".")
            of_library = package in ("torch", "numpy") and name in _FUNCTIONS
            return of_library and _is_elementwise(function, only, row, seen)
    return is_number(node, seen) and not uses(node, row)
