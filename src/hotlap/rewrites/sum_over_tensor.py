"""Python's sum, min, max, any or all over a tensor or an array.

What it is
    The builtin asks for one element after the other. Each is a new tensor (or a NumPy scalar) and a call into the
    library: a microsecond or more where the library's own reduction takes a nanosecond.
Before
    if sum(samples) > 0:
After
    if samples.sum() > 0:
When it is the same
    min, max, any and all, and sums of whole numbers, give the same values. Sums of floating-point numbers add in
    another order: the same up to rounding.
When it is not
    With NaN among the elements, min and max of Python depend on the order. A script that needs each addition rounded
    to single precision in order gets other last digits.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import calls, only_argument

_REDUCES = ("sum", "min", "max", "any", "all")
_WHOLE = ("bool", "int64", "uint8")  # a sum of these is of 64 bits in both ways


class SumOverTensor(Rewrite):
    id = "sum-over-tensor"
    numerics = Numerics.ROUNDING

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for call in calls(function, *_REDUCES):
            argument = only_argument(call)
            value = seen.value(argument) if argument is not None else None
            if argument is None or value is None or not seen.is_tensor(argument, or_array=True):
                continue
            name = call.func.id if isinstance(call.func, ast.Name) else ""
            flat = value.shape is not None and len(value.shape) == 1  # of more, sum is over the first alone
            if not name or not flat or value.dtype == "object":
                continue
            exact = name != "sum" or value.dtype in _WHOLE
            yield Site(
                call,
                {"builtin": name, "type": value.type, "size": value.size},
                Numerics.BITWISE if exact else Numerics.ROUNDING,
            )

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        call = site.node
        assert isinstance(call, ast.Call)
        name = site.values["builtin"]
        text = f"{function.primary(call.args[0])}.{name}()"
        truth = name in ("any", "all") and not _is_condition(call, function)
        return (function.replace(call, f"bool({text})" if truth else text),)


def _is_condition(node: ast.AST, function: Function) -> bool:
    """Whether only its truth counts there."""
    parent = function.parents[node]
    if isinstance(parent, ast.If | ast.While | ast.IfExp):
        return parent.test is node
    return isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
