"""A batch in pinned memory, moved while the host waits.

What it is
    The loader pins its batches (`pin_memory=True`), but `.to(device)` waits for the end of each copy: the copy could go
    on while the host prepares what comes next.
Before
    for x, y in loader:
        x = x.to(device)
After
    for x, y in loader:
        x = x.to(device, non_blocking=True)
When it is the same
    Always: the device does the copy before what uses it.
When it is not
    Where the host changes the batch right after the copy was started; such a name is not recognised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import lru_cache

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import changes, method_calls, names_in
from hotlap.source.values import full_name

_LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")


class BlockingMove(Rewrite):
    id = "blocking-move"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        if not _pins(function.module):
            return
        for call, owner in method_calls(function, "to", "cuda"):
            loop = next(function.loops(function.statement(call)), None)
            if (
                not isinstance(loop, ast.For)
                or not isinstance(owner, ast.Name)
                or owner.id not in names_in(loop.target)
            ):
                continue
            cuda = isinstance(call.func, ast.Attribute) and call.func.attr == "cuda"
            moves = len(call.args) <= 1 and not call.keywords and (bool(call.args) or cuda)
            assigned = isinstance(function.parents[call], ast.Assign | ast.Tuple | ast.Call | ast.List)
            here = function.statement(call)
            after = [each for each in loop.body if each.lineno > (here.end_lineno or here.lineno)]
            again = isinstance(here, ast.Assign) and owner.id in names_in(here.targets[0])
            if (
                moves
                and assigned
                and seen.is_tensor(owner)
                and (again or not any(changes(each, owner.id) for each in after))
                and _is_device(call, seen)
            ):
                yield Site(call, {"call": function.text(call)})

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        call = site.node
        assert isinstance(call, ast.Call)
        end = function.span(call)[1] - 1
        return (Edit(end, end, ", non_blocking=True" if call.args else "non_blocking=True"),)


def _is_device(call: ast.Call, seen: Seen) -> bool:
    """Whether it is moved, and not converted: by `.cuda()`, or to what was seen to be a device or is named as one."""
    if not call.args:
        return True
    value = seen.value(call.args[0])
    if isinstance(call.args[0], ast.Constant):
        return isinstance(call.args[0].value, str) and call.args[0].value != "cpu"
    return value is not None and value.type in ("torch.device", "str")


@lru_cache(maxsize=64)
def _pins(module: ast.Module) -> bool:
    """Whether a loader of the module pins its batches."""
    return any(
        full_name(module, node.func) in _LOADERS
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and any(each.arg == "pin_memory" and ast.unparse(each.value) == "True" for each in node.keywords)
    )
