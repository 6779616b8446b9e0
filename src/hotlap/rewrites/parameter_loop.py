"""A small operation on each parameter or gradient, one after the other.

What it is
    Scaling, zeroing, clamping or stepping by hand is one call for each parameter in every step: hundreds of calls where
    one does it for all of them.
Before
    for p in model.parameters():
        if p.grad is not None:
            p.grad.mul_(scale)
After
    changed = [p for p in model.parameters() if p.grad is not None]
    if changed:
        torch._foreach_mul_([p.grad for p in changed], scale)
When it is the same
    Always: the same operations on the same numbers.
When it is not
    Where the loop does anything else; then it is not recognised.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import TENSOR, Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import (
    ends_its_line,
    free_name,
    indent_of,
    is_number,
    local_name,
    starts_its_line,
    used_outside,
    uses,
)

_SIGNED = {ast.Mult: "mul", ast.Div: "div", ast.Add: "add", ast.Sub: "sub"}
_LIST = re.compile(r"\[\w+\.(?:grad\.data|grad|data) for \w+ in \w+\]")
_LISTS = {
    "grad": ("grads", "gradients"),
    "data": ("weights", "parameter_data"),
    "grad.data": ("grads_data", "gradient_data"),
}
_OF_NUMBERS = ("mul_", "div_", "add_", "sub_")
_OF_TENSORS = ("add_", "sub_", "copy_")


class ParameterLoop(Rewrite):
    id = "parameter-loop"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for node in function.walk():
            if isinstance(node, ast.For) and self._lines(function, node, seen):
                own_lines = starts_its_line(function, node) and ends_its_line(function, node)
                if own_lines and not node.orelse:
                    yield Site(node, lines=(node.lineno, node.end_lineno or node.lineno))

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        node = site.node
        assert isinstance(node, ast.For)
        indent = indent_of(function, node)
        return (function.replace(node, f"\n{indent}".join(self._lines(function, node, seen))),)

    def _lines(self, function: Function, node: ast.For, seen: Seen) -> list[str]:
        """The loop in another form; none where it is not known to be the same."""
        name, listed = _walked(function, node, seen)
        if not name:
            return []
        kept, torch = free_name(function, "changed", "changed_parameters"), local_name(function, "torch")
        body, condition = _filtered(node.body, name)
        step = "\t" if indent_of(function, node).endswith("\t") else "    "
        changed: list[str] = []
        for each in body if kept and torch else ():
            lines = _statement(function, each, _Names(name, kept, f"{torch}._foreach"), seen)
            if not lines:
                return []
            changed += lines
        if not changed or used_outside(function, node, name):
            return []
        first = f"{kept} = [{name} for {name} in {listed}{condition}]"
        return [first, f"if {kept}:", *(f"{step}{each}" for each in _listed_once(function, changed))]


def _listed_once(function: Function, lines: list[str]) -> list[str]:
    """Lists that several lines use get a name: to make one takes as long as a call."""
    together = "\n".join(lines)
    named = []
    for text in dict.fromkeys(_LIST.findall(together)):
        wanted = _LISTS[text.split(" ")[0].partition(".")[2]]
        name = free_name(function, *wanted)
        if together.count(text) > 1 and name:
            together = together.replace(text, name)
            named.append(f"{name} = {text}")
    return [*named, *together.split("\n")]


class _Names:
    """Of a parameter in the loop, of the list, and what all calls begin with."""

    def __init__(self, one: str, kept: str, foreach: str) -> None:
        self.one, self.kept, self.foreach = one, kept, foreach

    def part(self, node: ast.expr) -> str:
        """The list of all p, p.data, p.grad or p.grad.data; empty for what is none of these."""
        text = ast.unparse(node)
        if text == self.one:
            return self.kept
        known = [f"{self.one}.{each}" for each in ("data", "grad", "grad.data")]
        return f"[{text} for {self.one} in {self.kept}]" if text in known else ""


def _walked(function: Function, node: ast.For, seen: Seen) -> tuple[str, str]:
    """The parameter's name in the loop, and what is walked as it is written; empty where these are no parameters."""
    match node.target, node.iter:
        case ast.Name(id=name), ast.Call(
            func=ast.Attribute(attr="parameters", value=owner), args=[], keywords=[]
        ):
            value = seen.value(owner)
            return (
                (name, function.text(node.iter)) if value is not None and value.is_a("Module") else ("", "")
            )
        case ast.Tuple(elts=[ast.Name(id=unused), ast.Name(id=name)]), ast.Call(
            func=ast.Attribute(attr="named_parameters", value=owner), args=[], keywords=[]
        ):
            value = seen.value(owner)
            free = (
                sum(uses(each, unused) for each in node.body) == 0
                and value is not None
                and value.is_a("Module")
            )
            return (name, f"{function.text(owner)}.parameters()") if free else ("", "")
        case ast.Name(id=name), ast.Name() | ast.Attribute() | ast.Subscript():
            listed = seen.value(node.iter)
            held = listed.element if listed is not None and listed.type == "list" else None
            leaf = held is not None and held.type == TENSOR and "grad" in held.rest
            return (name, function.text(node.iter)) if leaf else ("", "")
    return "", ""


def _filtered(body: list[ast.stmt], name: str) -> tuple[list[ast.stmt], str]:
    """What is done, and for which parameters."""
    match body:
        case [ast.If(test=test, body=inner, orelse=[])] if ast.unparse(test) in (
            f"{name}.grad is not None",
            f"{name}.requires_grad",
        ):
            return inner, f" if {ast.unparse(test)}"
        case [ast.If(test=test, body=[ast.Continue()], orelse=[]), *rest] if (
            ast.unparse(test) == f"{name}.grad is None"
        ):
            return rest, f" if {name}.grad is not None"
    return body, ""


def _statement(function: Function, node: ast.stmt, names: _Names, seen: Seen) -> list[str]:
    match node:
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(attr=called, value=owner), args=args, keywords=words)
        ):
            target = names.part(owner)
            given = {each.arg or "": each.value for each in words}
            return _call(function, called, target, args, given, names, seen) if target else []
        case ast.AugAssign(target=target, op=op, value=value) if type(op) in _SIGNED:
            whole, sign = names.part(target), _SIGNED[type(op)]
            if not whole:
                return []
            if is_number(value, seen) and not uses(value, names.one):
                return [f"{names.foreach}_{sign}_({whole}, {function.text(value)})"]
            other = _scaled(function, value, names, seen) if sign in ("add", "sub") else ""
            return [f"{names.foreach}_{sign}_({whole}, {other})"] if other else []
    return []


def _call(
    function: Function,
    called: str,
    target: str,
    args: list[ast.expr],
    words: dict[str, ast.expr],
    names: _Names,
    seen: Seen,
) -> list[str]:
    fixed = all(not uses(each, names.one) and is_number(each, seen) for each in [*words.values(), *args[1:]])
    if called == "zero_" and not args and not words:
        return [f"{names.foreach}_zero_({target})"]
    if called == "clamp_" and fixed:
        bounds = {**dict(zip(("min", "max"), args, strict=False)), **words}
        known = bounds.keys() <= {"min", "max"} and all(is_number(each, seen) for each in bounds.values())
        which = {"min": "clamp_min", "max": "clamp_max"}
        return (
            [
                f"{names.foreach}_{which[key]}_({target}, {function.text(each)})"
                for key, each in bounds.items()
            ]
            if known
            else []
        )
    if len(args) != 1 or not fixed:
        return []
    other = names.part(args[0])
    if called in _OF_TENSORS and other and words.keys() <= {"alpha"}:
        alpha = f", alpha={function.text(words['alpha'])}" if words else ""
        return (
            [f"{names.foreach}_{called}({target}, {other}{alpha})"]
            if not (words and called == "copy_")
            else []
        )
    number = is_number(args[0], seen) and not uses(args[0], names.one)
    return (
        [f"{names.foreach}_{called}({target}, {function.text(args[0])})"]
        if called in _OF_NUMBERS and number and not words
        else []
    )


def _scaled(function: Function, node: ast.expr, names: _Names, seen: Seen) -> str:
    """A list of tensors, or of products with one number."""
    match node:
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            for number, tensor in ((left, right), (right, left)):
                fixed = is_number(number, seen) and not uses(number, names.one)
                if fixed and names.part(tensor):
                    return f"{names.foreach}_mul({names.part(tensor)}, {function.text(number)})"
    return names.part(node)
