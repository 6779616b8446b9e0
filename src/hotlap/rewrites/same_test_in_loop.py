"""A question to a whole tensor that is asked anew in each turn of a loop.

What it is
    `if (mask > 0).any():` inside a loop goes through the tensor, and waits for the answer, in each turn; nothing in the
    loop changes it.
Before
    for x in frames:
        if (mask > 0).any():
After
    mask_any = bool((mask > 0).any())
    for x in frames:
        if mask_any:
When it is the same
    Always: the same answer each time.
When it is not
    Where something else changes the tensor while the loop runs; what the loop itself does to it is looked at.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import TENSOR, Edit, Function, Rewrite, Seen, Site, Value
from hotlap.rewrites import fixed_in, free_name, line_before, names_in, starts_its_line
from hotlap.source.values import dotted, full_name

_COMPARES = (ast.Gt, ast.GtE, ast.Lt, ast.LtE, ast.Eq, ast.NotEq)
_ASKS = ("isnan", "isinf", "isfinite")


class SameTestInLoop(Rewrite):
    id = "same-test-in-loop"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for node in function.walk():
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="any" | "all" as word, value=asked), args=[], keywords=[]
                ):
                    tensor = _asked(function, asked)
                case _:
                    continue
            loop = next(function.loops(function.statement(node)), None)
            value = seen.value(tensor) if tensor is not None else None
            if loop is None or tensor is None or not _is_whole(value) or not _is_truth(function, node):
                continue
            name = free_name(function, f"{_word(tensor)}_{word}", f"{_word(tensor)}_{word}_now")
            numbers = all(
                isinstance(each, ast.Constant) or seen.value(each) is not None
                for each in ast.walk(asked)
                if isinstance(each, ast.Name | ast.Attribute | ast.Constant)
                and not isinstance(function.parents[each], ast.Attribute | ast.Call)
            )
            if name and numbers and starts_its_line(function, loop) and fixed_in(function, loop, node):
                yield Site(node, {"call": function.text(node), "name": name})

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        node = site.node
        loop = next(function.loops(function.statement(node)))
        name, asked = site.values["name"], function.text(node)
        return (line_before(function, loop, f"{name} = bool({asked})"), function.replace(node, name))


def _asked(function: Function, node: ast.expr) -> ast.expr | None:
    """The tensor of `t > 0`, `torch.isnan(t)` and `t.isnan()`."""
    match node:
        case ast.Compare(left=ast.Name() | ast.Attribute() as left, ops=[op], comparators=[right]):
            plain = isinstance(right, ast.Constant | ast.Name | ast.Attribute)
            return left if isinstance(op, _COMPARES) and plain else None
        case ast.Call(func=ast.Attribute(attr=name, value=owner), args=[], keywords=[]) if name in _ASKS:
            return owner if dotted(owner) else None
        case ast.Call(args=[only], keywords=[]):
            known = full_name(function.module, node.func).partition("torch.")[2] in _ASKS
            return only if known and dotted(only) else None
    return None


def _is_whole(value: Value | None) -> bool:
    return value is not None and value.type == TENSOR and bool(value.shape)


def _is_truth(function: Function, node: ast.AST) -> bool:
    """Whether only its truth counts there, and it is asked in each turn before anything else could raise."""
    parent = function.parents[node]
    while isinstance(parent, ast.BoolOp) or (
        isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
    ):
        node, parent = parent, function.parents[parent]
    if isinstance(parent, ast.If | ast.IfExp):
        return parent.test is node
    called = isinstance(parent, ast.Call) and full_name(function.module, parent.func) == "bool"
    return called and bool(names_in(node))


def _word(node: ast.expr) -> str:
    return dotted(node).rpartition(".")[2].lstrip("_")
