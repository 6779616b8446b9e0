"""A number taken out of a device's tensor in every step.

What it is
    `.item()` and `float(loss)` wait until the device has computed all that was asked of it so far; meanwhile nothing
    new is asked.
Before
    for x, y in loader:
        ...
        running += loss.item()
After
    for x, y in loader:
        ...
        running += loss.detach()
    running = float(running)
When it is the same
    Up to rounding: the sum is made in the tensor's own precision.
When it is not
    Where the number decides what happens next in the loop, or is printed there: then it is advice.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import TENSOR, Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import ends_its_line, line_after, only_argument, starts_its_line, uses
from hotlap.source.values import full_name


class ItemEachStep(Rewrite):
    id = "item-each-step"
    numerics = Numerics.ROUNDING

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for node in function.walk():
            if not isinstance(node, ast.Call) or next(function.loops(function.statement(node)), None) is None:
                continue
            owner = _taken(function, node)
            value = seen.value(owner) if owner is not None else None
            on_device = (
                value is not None and value.type == TENSOR and len(value.rest) > 2 and value.rest[2] != "cpu"
            )
            if owner is not None and on_device:
                yield Site(node, {"call": function.text(node)}, advice=not self._edits(function, node))

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        return self._edits(function, site.node)

    def _edits(self, function: Function, call: ast.AST) -> tuple[Edit, ...]:
        """Of a sum that the loop does nothing else with."""
        owner, added = _taken(function, call), function.parents[call]
        match added:
            case ast.AugAssign(op=ast.Add(), target=ast.Name(id=name), value=value) if value is call:
                loop = next(function.loops(added))
            case _:
                return ()
        alone = uses(loop, name) == 1 and not isinstance(loop, ast.While) and not loop.orelse
        leaves = any(
            isinstance(each, ast.Return | ast.Yield | ast.Raise | ast.Try) for each in ast.walk(loop)
        )
        whole = starts_its_line(function, loop) and ends_its_line(function, loop)
        if owner is None or not alone or leaves or not whole:
            return ()
        detached = function.replace(call, f"{function.primary(owner)}.detach()")
        return (detached, line_after(function, loop, f"{name} = float({name})"))


def _taken(function: Function, node: ast.AST) -> ast.expr | None:
    """x of `x.item()` and `float(x)`."""
    match node:
        case ast.Call(func=ast.Attribute(attr="item", value=owner), args=[], keywords=[]):
            return owner
        case ast.Call(func=ast.Name()) if full_name(function.module, node.func) == "float":
            return only_argument(node)
    return None
