"""Gradients clipped by hand, parameter by parameter.

What it is
    One small operation for each parameter in every step where one call does it for all of them.
Before
    for p in model.parameters():
        p.grad.data.clamp_(-1, 1)
After
    torch.nn.utils.clip_grad_value_(model.parameters(), 1)
When it is the same
    Always: each element is clipped to the same bounds.
When it is not
    Where a parameter without a gradient must raise an error.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import local_name, same, starts_its_line, uses


class ClampedGradients(Rewrite):
    id = "clamped-gradients"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for node in function.walk():
            bound = _bound(node)
            if bound is None or not isinstance(node, ast.For):
                continue
            model = seen.value(node.iter.func.value)  # type: ignore[attr-defined]
            known = model is not None and model.is_a("Module")
            fixed = uses(bound, node.target.id) == 0  # type: ignore[attr-defined]
            if known and fixed and starts_its_line(function, node) and local_name(function, "torch"):
                yield Site(node)

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        loop = site.node
        bound = _bound(loop)
        assert isinstance(loop, ast.For)
        assert bound is not None
        torch = local_name(function, "torch")
        given = f"{function.text(loop.iter)}, {function.text(bound)}"
        return (function.replace(loop, f"{torch}.nn.utils.clip_grad_value_({given})"),)


def _bound(node: ast.AST) -> ast.expr | None:
    """c of a loop over parameters that does nothing but `p.grad.clamp_(-c, c)`."""
    match node:
        case ast.For(
            target=ast.Name(id=name),
            iter=ast.Call(func=ast.Attribute(attr="parameters"), args=[], keywords=[]),
            body=[body],
            orelse=[],
        ):
            pass
        case _:
            return None
    if isinstance(body, ast.If) and not body.orelse and len(body.body) == 1:
        if ast.unparse(body.test) != f"{name}.grad is not None":
            return None
        body = body.body[0]
    match body:
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(attr="clamp_", value=owner), args=args, keywords=words)
        ):
            given: dict[str | None, ast.expr] = dict(zip(("min", "max"), args, strict=False))
            given |= {each.arg: each.value for each in words}
            low, high = given.get("min"), given.get("max")
            if ast.unparse(owner) not in (f"{name}.grad", f"{name}.grad.data") or low is None or high is None:
                return None
            negated = (
                isinstance(low, ast.UnaryOp) and isinstance(low.op, ast.USub) and same(low.operand, high)
            )
            return high if negated else None
    return None
