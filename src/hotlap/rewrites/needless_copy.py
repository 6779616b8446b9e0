"""A copy of a tensor that nothing needs.

What it is
    `.clone()` of what an operation has just made copies it once more; `.contiguous().view(...)` copies even where the
    sizes allow a view.
Before
    y = torch.cat([a, b]).clone()
    z = x.contiguous().view(n, -1)
After
    y = torch.cat([a, b])
    z = x.reshape(n, -1)
When it is the same
    Always: the same numbers. `reshape` copies where it must; what computes with a view may round differently.
When it is not
    Where the copy is there to have memory of its own: what an operation has made has it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import calls, method_calls
from hotlap.source.values import full_name

_FRESH = (
    "torch.cat", "torch.stack", "torch.zeros", "torch.ones", "torch.rand", "torch.randn", "torch.exp", "torch.log",
    "torch.matmul", "torch.bmm", "torch.tensor",
)  # fmt: skip
_OPERATIONS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.MatMult)


class NeedlessCopy(Rewrite):
    id = "needless-copy"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for call, owner in method_calls(function, "view"):
            match owner:
                case ast.Call(func=ast.Attribute(attr="contiguous", value=inner), args=[], keywords=[]):
                    sizes = not call.keywords and all(_is_size(each) for each in call.args)
                    if call.args and sizes and seen.is_tensor(inner) and _is_read(function, call, seen):
                        yield Site(
                            call, {"call": ".contiguous().view()", "better": ".reshape()"}, Numerics.ROUNDING
                        )
        for call, owner in method_calls(function, "clone"):
            fresh = isinstance(owner, ast.Call) and owner in [*calls(function, *_FRESH)]
            made = (
                isinstance(owner, ast.BinOp) and isinstance(owner.op, _OPERATIONS) and seen.is_tensor(owner)
            )
            if (fresh or made) and not call.args and not call.keywords:
                yield Site(call, {"call": ".clone()", "better": function.text(owner)})

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        call = site.node
        assert isinstance(call, ast.Call)
        owner = call.func.value  # type: ignore[attr-defined]
        if site.values["call"] == ".clone()":
            return (function.replace(call, function.primary(owner)),)
        inner = owner.func.value
        start, end = function.span(inner)[1], function.span(call.func)[1]
        return (Edit(start, end, ".reshape"),)


def _is_size(node: ast.expr) -> bool:
    """No dtype: `view(torch.int8)` is another function."""
    return not isinstance(node, ast.Attribute) or node.attr not in (
        "dtype",
        "int8",
        "uint8",
        "int32",
        "float32",
        "float16",
        "bfloat16",
    )


def _is_read(function: Function, call: ast.Call, seen: Seen) -> bool:
    """Whether the result is computed with, by what takes any strides, and not changed in place."""
    parent = function.parents[call]
    if not isinstance(parent, ast.Call):
        return isinstance(parent, ast.BinOp)
    module = seen.value(parent.func)
    layer = module is not None and module.type.startswith("torch.nn.modules.")
    return layer or full_name(function.module, parent.func).startswith("torch.")
