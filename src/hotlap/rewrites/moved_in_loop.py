"""The same tensor moved to a device, or converted, in each turn of a loop.

What it is
    `weight.to(device)` of a tensor that the loop does not change copies the same numbers each time.
Before
    for x, y in loader:
        loss = loss_of(model(x), y, weight.to(device))
After
    moved_weight = weight.to(device)
    for x, y in loader:
        loss = loss_of(model(x), y, moved_weight)
When it is the same
    Always: the same numbers of the same type.
When it is not
    Where what is done with the copy changes it; then it is not recognised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import TENSOR, Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import fixed_in, free_name, line_before, method_calls, starts_its_line
from hotlap.source.values import dotted

_MOVES = ("to", "cuda", "float", "double", "half", "bfloat16", "long", "type")


class MovedInLoop(Rewrite):
    id = "moved-in-loop"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for call, owner in method_calls(function, *_MOVES):
            loop = next(function.loops(function.statement(call)), None)
            value = seen.value(owner) if dotted(owner) else None
            if loop is None or value is None or value.type != TENSOR or not value.shape:
                continue
            name = free_name(function, f"moved_{dotted(owner).rpartition('.')[2].lstrip('_')}")
            plain = all(isinstance(each, ast.Name | ast.Attribute | ast.Constant) for each in call.args)
            plain = plain and all(
                isinstance(each.value, ast.Name | ast.Attribute | ast.Constant) for each in call.keywords
            )
            read = isinstance(function.parents[call], ast.Call | ast.BinOp | ast.keyword | ast.Compare)
            whole = starts_its_line(function, loop) and not value.grad
            if name and plain and read and whole and fixed_in(function, loop, call):
                yield Site(call, {"call": function.text(call), "name": name})

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        call, name = site.node, site.values["name"]
        loop = next(function.loops(function.statement(call)))
        text = f"{name} = {function.text(call)}"
        return (line_before(function, loop, text), function.replace(call, name))
