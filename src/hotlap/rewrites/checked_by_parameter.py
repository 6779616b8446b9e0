"""Gradients or weights looked at parameter by parameter: a check for NaN, or a norm.

What it is
    One or more small operations and one answer to wait for, for each parameter in every step.
Before
    for p in model.parameters():
        total += p.grad.norm().item() ** 2
After
    looked_at = [p.grad for p in model.parameters() if p.grad is not None]
    if looked_at:
        total += torch.nn.utils.get_total_norm(looked_at).item() ** 2
When it is the same
    A check for NaN or infinity always: a norm that is finite shows that there is none, else the loop is run. A norm up
    to rounding: it is a norm of norms.
When it is not
    Where the loop does anything else; then it is advice.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import (
    free_name,
    indent_of,
    lines_before,
    local_name,
    moved_in,
    starts_its_line,
    used_outside,
)

_LOOKS = ("norm", "item", "isnan", "isinf", "isfinite", "any", "all")
_FAULTS = ("isnan", "isinf")


class CheckedByParameter(Rewrite):
    id = "checked-by-parameter"
    numerics = Numerics.ROUNDING

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for node in function.walk():
            match node:
                case ast.For(
                    iter=ast.Call(func=ast.Attribute(attr="parameters" | "named_parameters", value=owner))
                ):
                    body: list[ast.AST] = [*node.body]
                case ast.GeneratorExp(
                    generators=[
                        ast.comprehension(
                            iter=ast.Call(
                                func=ast.Attribute(attr="parameters" | "named_parameters", value=owner)
                            )
                        )
                    ]
                ):
                    body = [node.elt]
                case _:
                    continue
            model = seen.value(owner)
            called = [
                each.func.attr
                for part in body
                for each in ast.walk(part)
                if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)
            ]
            looks = [each for each in called if each in _LOOKS]
            changes = any(each.endswith("_") and not each.startswith("_") for each in called)
            if model is not None and model.is_a("Module") and looks and not changes:
                checks = bool(_fault_checked(node))
                numerics = Numerics.BITWISE if checks else Numerics.ROUNDING
                yield Site(node, {"call": looks[0]}, numerics, advice=not self._edits(function, node))

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        return self._edits(function, site.node)

    def _edits(self, function: Function, node: ast.AST) -> tuple[Edit, ...]:
        torch, kept = local_name(function, "torch"), free_name(function, "looked_at")
        looked = _fault_checked(node) or (_normed(node) if isinstance(node, ast.For) else "")
        name, listed = _walked(function, node)
        if not (torch and kept and looked and name) or used_outside(function, node, name):
            return ()
        condition = f" if {name}.grad is not None" if ".grad" in looked else ""
        first = f"{kept} = [{looked} for {name} in {listed}{condition}]"
        norm = f"{torch}.nn.utils.get_total_norm({kept})"
        if isinstance(node, ast.For):
            if not starts_its_line(function, node) or node.orelse:
                return ()
            if _fault_checked(node):
                inner = moved_in(function, node, f"if {kept} and not {torch}.isfinite({norm}):")
                if not inner:
                    return ()
                return (
                    Edit(
                        inner[0].start, inner[0].end, f"{indent_of(function, node)}{first}\n{inner[0].text}"
                    ),
                    *inner[1:],
                )
            total = function.text(_added(node.body)[0])
            indent = indent_of(function, node)
            step = "\t" if indent.endswith("\t") else "    "
            lines = (first, f"if {kept}:", f"{step}{total} += {norm}.item() ** 2")
            return (function.replace(node, f"\n{indent}".join(lines)),)
        call, statement = function.parents[node], function.statement(node)
        plain = (
            isinstance(call, ast.Call)
            and ast.unparse(call.func) == "any"
            and starts_its_line(function, statement)
        )
        if not plain or function.text(statement).startswith("elif") or isinstance(statement, ast.While):
            return ()
        text = f"(bool({kept}) and not {torch}.isfinite({norm}) and {function.text(call)})"
        return (lines_before(function, statement, first), function.replace(call, text))


def _walked(function: Function, node: ast.AST) -> tuple[str, str]:
    """The parameter's name, and all parameters as they are written."""
    loop = node.generators[0] if isinstance(node, ast.GeneratorExp) else node
    target, walked = loop.target, loop.iter  # type: ignore[attr-defined]
    owner = function.text(walked.func.value)
    match target:
        case ast.Name(id=name) if walked.func.attr == "parameters":
            return name, f"{owner}.parameters()"
        case ast.Tuple(elts=[_, ast.Name(id=name)]) if walked.func.attr == "named_parameters":
            return name, f"{owner}.parameters()"
    return "", ""


def _name(node: ast.AST) -> str:
    target = node.generators[0].target if isinstance(node, ast.GeneratorExp) else node.target  # type: ignore[attr-defined]
    last = target.elts[-1] if isinstance(target, ast.Tuple) else target
    return last.id if isinstance(last, ast.Name) else ""


def _fault_checked(node: ast.AST) -> str:
    """What is checked for NaN, where nothing happens unless there is one: `p`, `p.data`, `p.grad`, `p.grad.data`."""
    name = _name(node)
    if isinstance(node, ast.GeneratorExp):
        loop = node.generators[0]
        conditions = all(ast.unparse(each) == f"{name}.grad is not None" for each in loop.ifs)
        return _fault(node.elt, name) if conditions else ""
    found = {_only_if(each, name) for each in node.body}  # type: ignore[attr-defined]
    found -= {"continue"}
    return found.pop() if len(found) == 1 else ""


def _only_if(node: ast.stmt, name: str) -> str:
    match node:
        case ast.If(test=test, body=[ast.Continue()], orelse=[]) if (
            ast.unparse(test) == f"{name}.grad is None"
        ):
            return "continue"
        case ast.If(test=test, body=body, orelse=[]):
            if ast.unparse(test) == f"{name}.grad is not None":
                inner = {_only_if(each, name) for each in body}
                return inner.pop() if len(inner) == 1 else ""
            parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
            return next((found for each in parts if (found := _fault(each, name))), "")
    return ""


def _fault(node: ast.expr, name: str) -> str:
    """The tensor in which the expression is true for NaN or infinity alone."""
    match node:
        case ast.BoolOp(op=ast.Or(), values=values):
            found = {_fault(each, name) for each in values}
            return found.pop() if len(found) == 1 else ""
        case ast.Call(func=ast.Attribute(attr="item", value=inner), args=[], keywords=[]):
            return _fault(inner, name)
        case ast.UnaryOp(
            op=ast.Not(), operand=ast.Call(func=ast.Attribute(attr="all", value=inner), args=[])
        ):
            return _asked(inner, name, ("isfinite",))
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=ast.Attribute(attr="all"), args=[inner])):
            return _asked(inner, name, ("isfinite",))
        case ast.Call(func=ast.Attribute(attr="any", value=inner), args=[], keywords=[]):
            return _asked(inner, name, _FAULTS)
        case ast.Call(func=ast.Attribute(attr="any"), args=[inner], keywords=[]):
            return _asked(inner, name, _FAULTS)
    return ""


def _asked(node: ast.expr, name: str, ways: tuple[str, ...]) -> str:
    match node:
        case ast.Call(func=ast.Attribute(attr=way, value=ast.Name(id="torch")), args=[tensor], keywords=[]):
            pass
        case ast.Call(func=ast.Attribute(attr=way, value=tensor), args=[], keywords=[]):
            pass
        case _:
            return ""
    text = ast.unparse(tensor)
    known = [name, *(f"{name}.{each}" for each in ("data", "grad", "grad.data"))]
    return text if way in ways and text in known else ""


def _added(body: list[ast.stmt]) -> tuple[ast.expr, ast.expr]:
    """The sum, and what is added to it; a condition on the gradient around it does not count."""
    match body:
        case [ast.If(body=inner, orelse=[], test=ast.Compare())]:
            return _added(inner)
        case [ast.AugAssign(op=ast.Add(), target=ast.Name() as target, value=value)]:
            return target, value
        case [
            ast.Assign(targets=[ast.Name(id=norm)], value=made),
            ast.AugAssign(op=ast.Add(), target=ast.Name() as target, value=value),
        ]:
            text = ast.unparse(value)
            squared = (f"{norm}.item() ** 2", f"{norm} ** 2", f"{norm}.pow(2)")
            return target, ast.parse(
                f"({ast.unparse(made)}).item() ** 2", mode="eval"
            ).body if text == squared[0] else ast.Constant(0)
    return ast.Constant(0), ast.Constant(0)


def _normed(node: ast.For) -> str:
    """p.grad of a loop that does nothing but `total += p.grad.norm().item() ** 2`."""
    name = _name(node)
    match node.body:
        case [ast.If(test=test)] if ast.unparse(test) != f"{name}.grad is not None":
            return ""
    match _added(node.body)[1]:
        case ast.BinOp(
            op=ast.Pow(),
            left=ast.Call(
                func=ast.Attribute(
                    attr="item",
                    value=ast.Call(func=ast.Attribute(attr="norm", value=tensor), args=args, keywords=[]),
                )
            ),
            right=ast.Constant(value=2),
        ) if [ast.unparse(each) for each in args] in ([], ["2"]):
            text = ast.unparse(tensor).replace(".detach()", "")
            known = [name, *(f"{name}.{each}" for each in ("data", "grad", "grad.data"))]
            return text if text in known else ""
    return ""
