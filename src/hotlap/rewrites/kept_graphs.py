"""Losses that are kept together with the graphs they were computed by.

What it is
    `losses.append(loss)` and `total += loss` keep every step's graph, with all its activations, as long as the list or
    the sum lives: memory grows with each step.
Before
    loss.backward()
    losses.append(loss)
After
    loss.backward()
    losses.append(loss.detach())
When it is the same
    Where what is kept is looked at and not trained on: the same numbers.
When it is not
    Where a backward pass goes through what was kept; a function that could do so is not recognised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import TENSOR, Cost, Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import names_in
from hotlap.source.values import dotted


class KeptGraphs(Rewrite):
    id = "kept-graphs"
    numerics = Numerics.BITWISE
    cost = Cost.MEMORY

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        found = [(node, *_kept(node)) for node in function.walk()]
        trained = _trained(function) if any(kept is not None for _, kept, _ in found) else set()
        for node, kept, loss in found:
            if kept is None or loss is None:
                continue
            loop = next(function.loops(node), None)
            value = seen.value(loss)
            name = dotted(kept)
            grows = value is not None and value.type == TENSOR and value.grad and loop is not None
            backwards = loop is not None and dotted(loss) in _trained_in(loop)
            if grows and backwards and name and name not in trained and not _handed_out(function, kept):
                yield Site(node, {"name": name, "loss": function.text(loss)})

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        _, loss = _kept(site.node)
        assert loss is not None
        return (function.replace(loss, f"{function.text(loss)}.detach()"),)


def _kept(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """Where a loss is kept, and the loss."""
    match node:
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(attr="append", value=kept), args=[ast.Name() as loss], keywords=[]
            )
        ):
            return kept, loss
        case ast.AugAssign(
            op=ast.Add(), target=ast.Name() | ast.Attribute() as kept, value=ast.Name() as loss
        ):
            return kept, loss
    return None, None


def _trained_in(tree: ast.AST) -> set[str]:
    """Names of what `.backward()` is called of, and of what `fabric.backward(loss)` is given."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="backward" | "manual_backward" | "grad", value=owner), args=args
            ):
                found |= (
                    names_in(owner) | {dotted(owner)} | {name for each in args for name in names_in(each)}
                )
    return found


def _trained(function: Function) -> set[str]:
    """What a backward pass may go through: names that a trained one is computed from, as far as assignments tell.

    A name that is bound once in each turn, as `loss` is, does not lead from one turn to the next.
    """
    found = _trained_in(function.node)
    while True:
        more = set(found)
        for targets, value in _assigned(function):
            if targets & found:
                more |= names_in(value) | {
                    dotted(each) for each in ast.walk(value) if isinstance(each, ast.Attribute)
                }
        if more == found:
            return found
        found = more


def _assigned(function: Function) -> Iterator[tuple[set[str], ast.expr]]:
    for each in function.walk():
        if isinstance(each, ast.Assign):
            yield {name for target in each.targets for name in names_in(target)}, each.value


def _handed_out(function: Function, kept: ast.expr) -> bool:
    """Whether others may train on it: it is an attribute, returned, or passed to a function of the script's own."""
    if not isinstance(kept, ast.Name):
        return True
    given = [
        one
        for each in ast.walk(function.node)
        if isinstance(each, ast.Return | ast.Yield) and each.value is not None
        for one in [each.value, *getattr(each.value, "elts", [])]
    ]
    return any(isinstance(one, ast.Name) and one.id == kept.id for one in given)
