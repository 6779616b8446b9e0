"""A picture decoded in full size and then made smaller.

What it is
    A JPEG decoder can leave out the details that a resize throws away, for a quarter or a tenth of the time.
Before
    image = Image.open(path)
    small = image.convert("RGB").resize((64, 64))
After
    image = Image.open(path)
    image.draft("RGB", (128, 128))
    small = image.convert("RGB").resize((64, 64))
When it is the same
    Never to the bit: pixels differ by what two ways to make a picture smaller differ.
When it is not
    Files that are no JPEG are decoded as before. Where the full size is used as well it is not recognised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import line_after, method_calls, starts_its_line, uses
from hotlap.source.values import full_name

_WIDER = 2  # of the wanted size: so that the resize has enough to go by


class DecodedWhole(Rewrite):
    id = "decoded-whole"
    numerics = Numerics.STATISTICAL

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for call, owner in method_calls(function, "resize"):
            size = _size(call)
            name = _opened(owner)
            bound = [
                each
                for each in function.walk()
                if isinstance(each, ast.stmt) and name and _binds(function, each, name)
            ]
            if len(bound) != 1 or size is None:
                continue
            statement = bound[0]
            alone = uses(function.node, name) == 2 and _within(function, call, statement)
            if alone and starts_its_line(function, statement):
                yield Site(statement, {"size": f"{size[0]}x{size[1]}"}, lines=_lines(statement, call))

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        statement = site.node
        assert isinstance(statement, ast.Assign)
        assert isinstance(statement.targets[0], ast.Name)
        name = statement.targets[0].id
        size = next(
            found
            for call, owner in method_calls(function, "resize")
            if _opened(owner) == name and (found := _size(call))
        )
        wanted = f"({_WIDER * size[0]}, {_WIDER * size[1]})"
        return (line_after(function, statement, f'{name}.draft("RGB", {wanted})'),)


def _size(call: ast.Call) -> tuple[int, int] | None:
    match call.args[:1]:
        case [ast.Tuple(elts=[ast.Constant(value=int(width)), ast.Constant(value=int(height))])]:
            return width, height
    return None


def _opened(node: ast.expr) -> str:
    """The name of x in `x.convert("RGB")`."""
    match node:
        case ast.Call(
            func=ast.Attribute(attr="convert", value=ast.Name(id=name)), args=[ast.Constant(value="RGB")]
        ):
            return name
    return ""


def _binds(function: Function, node: ast.AST, name: str) -> bool:
    match node:
        case ast.Assign(targets=[ast.Name(id=found)], value=ast.Call() as call):
            return found == name and full_name(function.module, call.func) == "PIL.Image.open"
    return False


def _within(function: Function, call: ast.AST, statement: ast.stmt) -> bool:
    """Whether both stand in the same block, one after the other."""
    user = function.statement(call)
    return function.parents.get(user) is function.parents.get(statement) and user.lineno > statement.lineno


def _lines(statement: ast.stmt, call: ast.Call) -> tuple[int, int]:
    return statement.lineno, call.end_lineno or call.lineno
