"""A loop over indices that computes one element at a time.

What it is
    `for i in range(len(x))` with `x[i]` in its body makes several tensors of one element in each turn; arithmetic on
    the whole tensor takes one call for each operation.
Before
    for i in range(len(x)):
        out[i] = gain * x[i] + offset[i]
After
    out[:len(x)] = gain * x + offset[:len(x)]
When it is the same
    Sums, differences, products and quotients of each element are the same bits. Powers may be rounded differently.
When it is not
    Where an element depends on another one, as `x[i - 1]`; then it is not recognised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import replaced, starts_its_line, uses
from hotlap.source.values import full_name

_EXACT = (ast.Add, ast.Sub, ast.Mult, ast.Div)


class ElementwiseLoop(Rewrite):
    id = "elementwise-loop"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for node in function.walk():
            walked = _walked(function, node)
            if walked is None or not isinstance(node, ast.For) or not seen.is_tensor(walked, or_array=True):
                continue
            index = node.target.id  # type: ignore[attr-defined]
            later = uses(function.node, index) - uses(node, index)
            if later or not starts_its_line(function, node):
                continue
            if all(_is_elementwise(each, index, seen) for each in node.body):
                powers = any(isinstance(each, ast.Pow) for each in ast.walk(node))
                yield Site(node, {}, Numerics.ROUNDING if powers else Numerics.BITWISE)

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        loop = site.node
        assert isinstance(loop, ast.For)
        walked = _walked(function, loop)
        assert walked is not None
        whole = function.text(walked)
        index = loop.target.id  # type: ignore[attr-defined]
        edits = [Edit(function.span(loop)[0], function.span(loop.body[0])[0], "")]
        for number, each in enumerate(loop.body):
            changes: dict[ast.AST, str] = {
                node: function.text(node.value)
                if function.text(node.value) == whole and isinstance(node.ctx, ast.Load)
                else f"{function.text(node.value)}[:len({whole})]"
                for node in ast.walk(each)
                if isinstance(node, ast.Subscript) and uses(node.slice, index)
            }
            text = replaced(each, function, changes)
            start = function.span(loop.body[number])[0]
            if number:  # the line's own indent is that of the body
                line = function.starts[each.lineno - 1]
                ahead = function.source[function.starts[loop.lineno - 1] : function.span(loop)[0]].decode()
                edits.append(Edit(line, start, ahead))
            edits.append(Edit(start, function.span(each)[1], text))
        return tuple(edits)


def _walked(function: Function, node: ast.AST) -> ast.expr | None:
    """x of `for i in range(len(x))`, `range(x.shape[0])` or `range(x.size(0))`."""
    match node:
        case ast.For(target=ast.Name(), iter=ast.Call(args=[length], keywords=[]) as call, orelse=[]):
            if full_name(function.module, call.func) != "range":
                return None
        case _:
            return None
    match length:
        case ast.Call(func=ast.Name(), args=[ast.Name() | ast.Attribute() as owner], keywords=[]):
            return owner if full_name(function.module, length.func) == "len" else None
        case ast.Subscript(value=ast.Attribute(attr="shape", value=owner), slice=ast.Constant(value=0)):
            return owner
        case ast.Call(
            func=ast.Attribute(attr="size", value=owner), args=[ast.Constant(value=0)], keywords=[]
        ):
            return owner
    return None


def _is_elementwise(statement: ast.stmt, index: str, seen: Seen) -> bool:
    match statement:
        case ast.Assign(targets=[target], value=value) | ast.AugAssign(target=target, value=value):
            fine = isinstance(statement, ast.Assign) or isinstance(statement.op, _EXACT)
            return fine and _is_element(target, index, seen) and _is_plain(value, index, seen)
    return False


def _is_element(node: ast.expr, index: str, seen: Seen) -> bool:
    """`x[i]` of a tensor or an array of one dimension."""
    match node:
        case ast.Subscript(value=ast.Name() | ast.Attribute() as owner, slice=ast.Name(id=name)) if (
            name == index
        ):
            value = seen.value(owner)
            shape = value.shape if value is not None else None
            return seen.is_tensor(owner, or_array=True) and shape is not None and len(shape) == 1
    return False


def _is_plain(node: ast.expr, index: str, seen: Seen) -> bool:
    match node:
        case ast.BinOp():
            fine = isinstance(node.op, (*_EXACT, ast.Pow))
            return fine and _is_plain(node.left, index, seen) and _is_plain(node.right, index, seen)
        case ast.UnaryOp(op=ast.USub()):
            return _is_plain(node.operand, index, seen)
        case ast.Constant():
            return isinstance(node.value, int | float) and not isinstance(node.value, bool)
        case ast.Name() if node.id != index:
            value = seen.value(node)
            return value is not None and value.type in ("int", "float")
    return _is_element(node, index, seen)
