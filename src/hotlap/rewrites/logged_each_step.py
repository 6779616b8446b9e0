"""A line printed, or a progress bar or a logger fed, in every step.

What it is
    Each line takes the loss out of the device, formats it, and writes it; a terminal or a file takes it one by one.
Before
    for i, (x, y) in enumerate(loader):
        print(i, loss.item())
After
    for i, (x, y) in enumerate(loader):
        if i % 100 == 0:
            print(i, loss.item())
When it is the same
    The model is; what is printed is less.
When it is not
    Where every line is wanted. It is advice: a script's output is its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import moved_in, starts_its_line
from hotlap.source.values import full_name

_METHODS = ("set_postfix", "set_description", "set_postfix_str", "add_scalar", "add_scalars")
_FUNCTIONS = ("print", "wandb.log", "logging.info", "mlflow.log_metric", "mlflow.log_metrics")
_EVERY = 100


class LoggedEachStep(Rewrite):
    id = "logged-each-step"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for node in function.walk():
            match node:
                case ast.Expr(value=ast.Call() as call):
                    name = full_name(function.module, call.func)
                    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
                case _:
                    continue
            loop = next(function.loops(node), None)
            steps = loop is not None and node in loop.body and _trains(loop) and not _is_outer(loop)
            if steps and (name in _FUNCTIONS or method in _METHODS) and _takes_a_number(function, call):
                last = node.end_lineno or node.lineno
                yield Site(node, {"call": function.text(call.func)}, lines=(node.lineno, last), advice=True)

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        node = site.node
        assert isinstance(node, ast.stmt)
        loop = next(function.loops(node))
        if not starts_its_line(function, node) or not isinstance(loop, ast.For):
            return ()
        match loop:
            case ast.For(
                target=ast.Tuple(elts=[ast.Name(id=number), _]), iter=ast.Call(func=ast.Name(id="enumerate"))
            ):
                return moved_in(function, node, f"if {number} % {_EVERY} == 0:")
        counted = (
            function.replace(loop.target, f"step, {_bracketed(function.text(loop.target), loop.target)}"),
            function.replace(loop.iter, f"enumerate({function.text(loop.iter)})"),
        )
        inner = moved_in(function, node, f"if step % {_EVERY} == 0:")
        return (*counted, *inner) if inner else ()


def _bracketed(text: str, target: ast.expr) -> str:
    return f"({text})" if isinstance(target, ast.Tuple) and not text.startswith("(") else text


def _trains(loop: ast.AST) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr == "backward" for each in ast.walk(loop))


def _is_outer(loop: ast.AST) -> bool:
    """Whether a loop within it trains: then this one is over epochs."""
    inner = (each for each in ast.walk(loop) if isinstance(each, ast.For | ast.While) and each is not loop)
    return any(_trains(each) for each in inner)


def _takes_a_number(function: Function, call: ast.Call) -> bool:
    for each in ast.walk(call):
        if isinstance(each, ast.Call) and each is not call:
            item = isinstance(each.func, ast.Attribute) and each.func.attr == "item"
            if item or full_name(function.module, each.func) == "float":
                return True
    return False
