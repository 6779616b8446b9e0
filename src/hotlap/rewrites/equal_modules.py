"""Equal sub-modules called one after the other on the same input.

What it is
    Each of the heads is a small product of its own; their weights side by side make one product.
Before
    out = torch.cat([head(x) for head in self.heads], dim=-1)
After
    out = torch.nn.functional.linear(x, torch.cat([head.weight for head in self.heads]), torch.cat([...bias...]))
When it is the same
    Up to rounding.
When it is not
    Where the modules are no linear layers: for others it is advice, with `torch.func.stack_module_state` and `vmap`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import TENSOR, Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import calls, free_name, line_before, local_name, starts_its_line
from hotlap.source.values import dotted, full_name

_LIST = "torch.nn.modules.container.ModuleList"
_LINEAR = "each=torch.nn.modules.linear.Linear"


class EqualModules(Rewrite):
    id = "equal-modules"
    numerics = Numerics.ROUNDING

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for call in calls(function, "torch.cat", "torch.stack"):
            found = _parts(call)
            if found is None:
                continue
            heads, given = (seen.value(each) for each in found)
            if heads is None or given is None or heads.type != _LIST or given.type != TENSOR:
                continue
            if any(each.startswith("each=") for each in heads.rest):
                yield Site(
                    call, {"name": dotted(found[0])}, advice=not self._is_linear(function, call, heads.rest)
                )

    def _is_linear(self, function: Function, call: ast.Call, words: tuple[str, ...]) -> bool:
        joined = full_name(function.module, call.func) == "torch.cat" and _dimension(call) == "-1"
        own_line = starts_its_line(function, function.statement(call)) and bool(local_name(function, "torch"))
        return joined and own_line and (_LINEAR in words or f"{_LINEAR}+bias" in words)

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        call = site.node
        assert isinstance(call, ast.Call)
        found = _parts(call)
        assert found is not None
        heads, given = (function.text(each) for each in found)
        torch, statement = local_name(function, "torch"), function.statement(call)
        value = seen.value(found[0])
        if not site.advice and value is not None:
            bias = (
                f", {torch}.cat([head.bias for head in {heads}])" if f"{_LINEAR}+bias" in value.rest else ""
            )
            weight = f"{torch}.cat([head.weight for head in {heads}])"
            return (function.replace(call, f"{torch}.nn.functional.linear({given}, {weight}{bias})"),)
        if (
            not torch
            or not starts_its_line(function, statement)
            or full_name(function.module, call.func) != "torch.stack"
        ):
            return ()
        state = free_name(function, "stacked", "stacked_heads")
        ahead = f"{state} = {torch}.func.stack_module_state(list({heads}))"
        one = f"lambda p, b: {torch}.func.functional_call({heads}[0], (p, b), ({given},))"
        out = f", out_dims={_dimension(call)}" if _dimension(call) != "0" else ""
        text = f"{torch}.vmap({one}{out})(*{state})"
        return (line_before(function, statement, ahead), function.replace(call, text))


def _dimension(call: ast.Call) -> str:
    given = [
        *(ast.unparse(each) for each in call.args[1:]),
        *(ast.unparse(each.value) for each in call.keywords),
    ]
    return given[0] if len(given) == 1 else "0" if not given else "?"


def _parts(call: ast.Call) -> tuple[ast.expr, ast.expr] | None:
    """The modules and the input of `[head(x) for head in heads]`."""
    match call.args[:1]:
        case [
            ast.ListComp(
                elt=ast.Call(
                    func=ast.Name(id=head), args=[ast.Name() | ast.Attribute() as given], keywords=[]
                ),
                generators=[ast.comprehension(target=ast.Name(id=name), iter=heads, ifs=[], is_async=0)],
            )
        ] if head == name and dotted(heads) and dotted(given).partition(".")[0] != name:
            return heads, given
    return None
