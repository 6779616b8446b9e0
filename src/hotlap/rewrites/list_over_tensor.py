"""A tensor or an array turned into a list, only to be put together again.

What it is
    `list(x)` makes one tensor for each row, and `torch.stack`, `np.array` or `len` goes through all of them.
Before
    y = np.array(list(frames))
After
    y = np.array(frames)
When it is the same
    Always: the same numbers in the same order.
When it is not
    Where the list itself is kept; then it is not recognised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import ARRAY, TENSOR, Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import calls, local_name, only_argument
from hotlap.source.values import full_name

_OF_TENSORS = ("torch.stack", "len")
_OF_ARRAYS = ("numpy.array", "numpy.stack", "len", "numpy.mean", "numpy.sum", "numpy.max", "numpy.min")


class ListOverTensor(Rewrite):
    id = "list-over-tensor"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for call in calls(function, *_OF_TENSORS, *_OF_ARRAYS):
            listed = only_argument(call)
            walked = _listed(function, listed)
            value = seen.value(walked) if walked is not None else None
            if value is None or not value.shape:
                continue
            name = full_name(function.module, call.func)
            known = _OF_TENSORS if value.type == TENSOR else _OF_ARRAYS if value.type == ARRAY else ()
            if name in known and (name != "torch.stack" or local_name(function, "torch")):
                yield Site(call, {"call": function.text(call.func), "type": value.type, "size": value.size})

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        call = site.node
        assert isinstance(call, ast.Call)
        walked = _listed(function, call.args[0])
        assert walked is not None
        if full_name(function.module, call.func) == "torch.stack":
            torch = local_name(function, "torch")
            words = f"memory_format={torch}.contiguous_format"
            return (function.replace(call, f"{function.primary(walked)}.clone({words})"),)
        return (function.replace(call.args[0], function.text(walked)),)


def _listed(function: Function, node: ast.expr | None) -> ast.expr | None:
    """x of `list(x)` and `[row for row in x]`."""
    match node:
        case ast.Call(func=ast.Name()) if full_name(function.module, node.func) in ("list", "tuple"):
            return only_argument(node)
        case ast.ListComp(
            elt=ast.Name(id=one),
            generators=[ast.comprehension(target=ast.Name(id=other), iter=walked, ifs=[], is_async=0)],
        ) if one == other:
            return walked
    return None
