"""A tensor that goes through NumPy and comes back.

What it is
    `torch.tensor(x.numpy())` leaves torch, makes an array, and copies it into a new tensor through the slow
    constructor.
Before
    y = torch.tensor(x.numpy())
After
    y = x.detach().clone()
When it is the same
    Always: the same numbers in a tensor of its own.
When it is not
    On a device, where it would also be a move to the host; then it is not recognised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import calls, only_argument


class ThroughNumpy(Rewrite):
    id = "through-numpy"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for call in calls(function, "torch.tensor"):
            given = only_argument(call)
            match given:
                case ast.Call(func=ast.Attribute(attr="numpy", value=owner), args=[], keywords=[]):
                    value = seen.value(_bare(owner))
                    if value is not None and seen.is_tensor(_bare(owner)) and "cpu" in value.rest:
                        yield Site(call)

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        call = site.node
        assert isinstance(call, ast.Call)
        owner = _bare(call.args[0].func.value)  # type: ignore[attr-defined]
        return (function.replace(call, f"{function.primary(owner)}.detach().clone()"),)


def _bare(node: ast.expr) -> ast.expr:
    """Without `.detach()` and `.cpu()`."""
    match node:
        case ast.Call(func=ast.Attribute(attr="detach" | "cpu", value=owner), args=[], keywords=[]):
            return _bare(owner)
    return node
