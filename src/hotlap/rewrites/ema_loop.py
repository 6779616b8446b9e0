"""An average of the weights, updated parameter by parameter.

What it is
    Two small operations for each parameter in every step: hundreds of calls where two do it for all of them.
Before
    for e, p in zip(ema.parameters(), model.parameters()):
        e.mul_(decay).add_(p, alpha=1 - decay)
After
    ema_parameters = list(ema.parameters())
    torch._foreach_mul_(ema_parameters, decay)
    torch._foreach_add_(ema_parameters, list(model.parameters()), alpha=1 - decay)
When it is the same
    Always: the same two operations on the same numbers.
When it is not
    Where the loop does anything else; then it is not recognised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import (
    ends_its_line,
    indent_of,
    is_number,
    local_name,
    names_in,
    starts_its_line,
    used_outside,
)
from hotlap.source.values import full_name

_NAME = "averaged_parameters"


class EmaLoop(Rewrite):
    id = "ema-loop"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for node in function.walk():
            found = _parts(function, node)
            if found is None or not isinstance(node, ast.For) or _NAME in names_in(function.node):
                continue
            models = [seen.value(each.func.value) for each in found.lists]  # type: ignore[attr-defined]
            own_lines = starts_its_line(function, node) and ends_its_line(function, node)
            fixed = all(is_number(each, seen) for each in found.numbers)
            free = not any(used_outside(function, node, each) for each in _targets(node))
            known = all(each is not None and each.is_a("Module") for each in models)
            if known and fixed and free and own_lines and local_name(function, "torch"):
                last = node.end_lineno or node.lineno
                yield Site(node, lines=(node.lineno, last))

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        node = site.node
        found = _parts(function, node)
        assert found is not None
        averaged, trained = (function.text(each) for each in found.lists)
        data = ".data" in function.text(node.body[0])  # type: ignore[attr-defined]
        listed = [
            f"[each.data for each in {each}]" if data else f"list({each})" for each in (averaged, trained)
        ]
        foreach = f"{local_name(function, 'torch')}._foreach"
        numbers = [function.text(each) for each in found.numbers]
        lines = [f"{_NAME} = {listed[0]}"]
        if found.way == "lerp":
            lines += [f"{foreach}_lerp_({_NAME}, {listed[1]}, {numbers[0]})"]
        else:
            lines += [f"{foreach}_mul_({_NAME}, {numbers[0]})"]
            scaled = f"{foreach}_mul({listed[1]}, {numbers[1]})"
            added = f"{listed[1]}, alpha={numbers[1]}" if found.way == "alpha" else scaled
            lines += [f"{foreach}_add_({_NAME}, {added})"]
        return (function.replace(node, f"\n{indent_of(function, node)}".join(lines)),)


@dataclass(frozen=True)
class _Parts:
    """`lists` are the averaged parameters and the trained ones, `numbers` the shares of what was and of what is new.

    `way`: alpha for `add_(new, alpha=share)`, product for `share * new`, lerp for `lerp_(new, share)`.
    """

    lists: tuple[ast.expr, ast.expr]
    numbers: tuple[ast.expr, ...]
    way: str


def _targets(node: ast.For) -> list[str]:
    return [each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)]


def _parts(function: Function, node: ast.AST) -> _Parts | None:
    match node:
        case ast.For(
            target=ast.Tuple(elts=[ast.Name(id=one), ast.Name(id=other)]),
            iter=ast.Call(
                func=ast.Name(id="zip"),
                args=[
                    ast.Call(func=ast.Attribute(attr="parameters"), args=[], keywords=[]) as first,
                    ast.Call(func=ast.Attribute(attr="parameters"), args=[], keywords=[]) as second,
                ],
            ),
            body=[ast.Expr(value=ast.Call(func=ast.Attribute(value=owner)) as called)],
            orelse=[],
        ) if full_name(function.module, ast.Name("zip")):
            pass
        case _:
            return None
    averaged = _root(owner)
    if averaged not in (one, other):
        return None
    old, new, lists = (one, other, (first, second)) if averaged == one else (other, one, (second, first))
    found = _chained(called, old, new) or _copied(called, old, new)
    if found is None or any({old, new} & names_in(each) for each in found[0]):
        return None
    return _Parts(lists, *found)


def _root(node: ast.expr) -> str:
    """t of `t`, `t.data`, `t.mul_(...)` and `t.data.mul_(...)`."""
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _chained(called: ast.Call, old: str, new: str) -> tuple[tuple[ast.expr, ...], str] | None:
    """`t.mul_(decay).add_(p, alpha=share)`, `t.mul_(decay).add_(share * p)` and `t.lerp_(p, share)`."""
    match called:
        case ast.Call(func=ast.Attribute(attr="lerp_", value=first), args=[second, share], keywords=[]):
            return ((share,), "lerp") if _alike(first, second, old, new) else None
        case ast.Call(
            func=ast.Attribute(
                attr="add_",
                value=ast.Call(func=ast.Attribute(attr="mul_", value=first), args=[decay], keywords=[]),
            ),
            args=[second],
            keywords=words,
        ):
            pass
        case _:
            return None
    if [each.arg for each in words] == ["alpha"]:
        return ((decay, words[0].value), "alpha") if _alike(first, second, old, new) else None
    part, tensor = _product(second, new)
    if words or part is None or tensor is None:
        return None
    return ((decay, part), "product") if _alike(first, tensor, old, new) else None


def _copied(called: ast.Call, old: str, new: str) -> tuple[tuple[ast.expr, ...], str] | None:
    """`t.copy_(share * p + decay * t)`, in either order."""
    match called:
        case ast.Call(
            func=ast.Attribute(attr="copy_", value=first),
            args=[ast.BinOp(op=ast.Add(), left=left, right=right)],
            keywords=[],
        ):
            pass
        case _:
            return None
    for mine, others in ((left, right), (right, left)):
        (decay, was), (share, now) = _product(mine, old), _product(others, new)
        if decay is not None and share is not None and was is not None and now is not None:
            same_way = ast.unparse(was) == ast.unparse(first) and _alike(first, now, old, new)
            return ((decay, share), "product") if same_way else None
    return None


def _product(node: ast.expr, name: str) -> tuple[ast.expr | None, ast.expr | None]:
    """The number and the tensor of `share * p` or `p * share`."""
    match node:
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            if _is(right, name):
                return left, right
            if _is(left, name):
                return right, left
    return None, None


def _alike(first: ast.expr, second: ast.expr, old: str, new: str) -> bool:
    """Both by name, or both by `.data`."""
    return (
        _is(first, old)
        and _is(second, new)
        and isinstance(first, ast.Attribute) == isinstance(second, ast.Attribute)
    )


def _is(node: ast.expr, name: str) -> bool:
    """The name, or its `.data`."""
    inner = node.value if isinstance(node, ast.Attribute) and node.attr == "data" else node
    return isinstance(inner, ast.Name) and inner.id == name
