"""A tensor or an array that grows by one piece in each turn of a loop.

What it is
    `torch.cat([all, piece])` copies everything that has been collected so far, in every turn: the time grows with the
    square of the number of pieces.
Before
    for batch in batches:
        out = torch.cat([out, batch])
After
    out_parts = [out]
    for batch in batches:
        out_parts.append(batch)
    out = torch.cat(out_parts)
When it is the same
    Always where the loop does nothing else with what it collects: the same pieces in the same order.
When it is not
    Where the loop looks at what is collected so far; then it is not recognised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import ends_its_line, line_after, line_before, names_in, starts_its_line, uses
from hotlap.source.values import full_name

_JOINS = (
    "torch.cat",
    "torch.concat",
    "numpy.concatenate",
    "torch.vstack",
    "torch.hstack",
    "numpy.vstack",
    "numpy.hstack",
)


class GrownInLoop(Rewrite):
    id = "grown-in-loop"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for node in function.walk():
            match node:
                case ast.Assign(
                    targets=[ast.Name() as target],
                    value=ast.Call(
                        args=[ast.List(elts=[first, piece]) | ast.Tuple(elts=[first, piece]), *_]
                    ) as call,
                ) if full_name(function.module, call.func) in _JOINS:
                    pass
                case _:
                    continue
            loop = next(function.loops(node), None)
            grows = isinstance(first, ast.Name) and first.id == target.id and uses(piece, target.id) == 0
            if loop is None or not grows or not seen.is_tensor(first, or_array=True):
                continue
            alone = (
                uses(loop, target.id) == 2
                and not loop.orelse
                and f"{target.id}_parts" not in names_in(function.node)
            )
            whole = all(starts_its_line(function, each) for each in (node, loop)) and ends_its_line(
                function, loop
            )
            if alone and whole and not _leaves(loop) and _is_fixed(call):
                yield Site(node, {"name": target.id}, lines=(node.lineno, node.end_lineno or node.lineno))

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        node = site.node
        assert isinstance(node, ast.Assign)
        assert isinstance(node.value, ast.Call)
        loop, name, call = next(function.loops(node)), site.values["name"], node.value
        pair: ast.List | ast.Tuple = call.args[0]  # type: ignore[assignment]
        parts = f"{name}_parts"
        start, end = function.span(call.args[0])
        first, last = function.span(call)
        joined = function.source[first:start].decode() + parts + function.source[end:last].decode()
        return (
            line_before(function, loop, f"{parts} = [{name}]"),
            function.replace(node, f"{parts}.append({function.text(pair.elts[1])})"),
            line_after(function, loop, f"{name} = {joined}"),
        )


def _leaves(loop: ast.stmt) -> bool:
    """Whether the function can end within the loop, or hand something out: then what comes after it is not reached."""
    return any(
        isinstance(each, ast.Return | ast.Yield | ast.YieldFrom | ast.Raise | ast.Try)
        for each in ast.walk(loop)
    )


def _is_fixed(call: ast.Call) -> bool:
    """Whether the other arguments, such as the dimension, are the same in every turn."""
    others = [*call.args[1:], *(each.value for each in call.keywords)]
    return all(isinstance(each, ast.Constant | ast.UnaryOp) for each in others)
