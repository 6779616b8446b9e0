"""Validation that records a graph which nobody uses.

What it is
    Without `torch.no_grad()` every operation keeps what a backward pass would need: time, and the memory of all
    activations.
Before
    def validate(model, loader):
        model.eval()
After
    @torch.no_grad()
    def validate(model, loader):
        model.eval()
When it is the same
    Always: the same operations on the same numbers. A loop within a longer function gets a `with` of its own.
When it is not
    Where the function, or who calls it, asks for gradients; a function that does so itself is not recognised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import line_before, local_name, method_calls, moved_in, starts_its_line

_GRAPHLESS = ("no_grad", "inference_mode", "set_grad_enabled")
_TRAINS = ("backward", "step", "requires_grad", "requires_grad_", "enable_grad", "grad", "zero_grad")
_RUNS = ("forward", "generate", "encode", "decode", "sample", "predict", "validation_step")


class GraphInValidation(Rewrite):
    id = "graph-in-validation"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        node = function.node
        if not local_name(function, "torch"):
            return
        for call, owner in method_calls(function, "eval"):
            value = seen.value(owner)
            if value is None or not value.is_a("Module") or call.args:
                continue
            if isinstance(node, ast.FunctionDef) and _is_whole(function, node) and _runs(node, owner):
                yield Site(node, {"function": node.name}, lines=(node.lineno, node.end_lineno or node.lineno))
                return
            loop = _loop_after(function, call)
            if loop is not None and _runs(loop, owner) and moved_in(function, loop, ""):
                last = loop.end_lineno or loop.lineno
                yield Site(loop, {"function": function.text(loop).splitlines()[0]}, lines=(loop.lineno, last))

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        torch = local_name(function, "torch")
        if isinstance(site.node, ast.For):
            return moved_in(function, site.node, f"with {torch}.no_grad():")
        return (line_before(function, site.node, f"@{torch}.no_grad()"),)


def _runs(tree: ast.AST, model: ast.expr) -> bool:
    """Whether the model computes something in a loop."""
    text = ast.unparse(model)
    ways = (text, *(f"{text}.{each}" for each in _RUNS))
    loops = (each for each in ast.walk(tree) if isinstance(each, ast.For))
    called = (each for loop in loops for each in ast.walk(loop) if isinstance(each, ast.Call))
    return any(ast.unparse(each.func) in ways for each in called)


def _is_whole(function: Function, node: ast.FunctionDef) -> bool:
    """A function that does nothing but validate."""
    yields = any(isinstance(each, ast.Yield | ast.YieldFrom) for each in function.walk())
    loops = any(isinstance(each, ast.For) for each in function.walk())
    bare = not node.decorator_list and starts_its_line(function, node)
    return bare and loops and not yields and not _names(node) & {*_GRAPHLESS, *_TRAINS}


def _loop_after(function: Function, call: ast.Call) -> ast.For | None:
    """The loop of a validation within a longer function: the next one behind `model.eval()` in the same block."""
    statement = function.statement(call)
    parent = function.parents[statement]
    body: list[ast.stmt] = next((each for each in _blocks(parent) if statement in each), [])
    graphless = [each for each in ast.walk(function.node) if isinstance(each, ast.With)]
    if any(
        statement in [*ast.walk(each)] and _names(each.items[0].context_expr) & {*_GRAPHLESS}
        for each in graphless
    ):
        return None
    decorators = getattr(function.node, "decorator_list", [])
    if any(_names(each) & {*_GRAPHLESS} for each in decorators):
        return None
    for each in body[body.index(statement) + 1 :] if body else ():
        if isinstance(each, ast.For):
            plain = (
                starts_its_line(function, each)
                and not each.orelse
                and not _names(each) & {*_GRAPHLESS, *_TRAINS}
            )
            return each if plain else None
        if _names(each) & {"train", *_GRAPHLESS}:
            return None
    return None


def _blocks(node: ast.AST) -> list[list[ast.stmt]]:
    return [
        getattr(node, each)
        for each in ("body", "orelse", "finalbody")
        if isinstance(getattr(node, each, None), list)
    ]


def _names(tree: ast.AST) -> set[str]:
    found = {each.attr for each in ast.walk(tree) if isinstance(each, ast.Attribute)}
    return found | {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
