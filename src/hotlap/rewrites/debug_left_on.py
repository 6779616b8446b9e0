"""A switch for debugging that was left on.

What it is
    Anomaly detection checks every gradient for NaN and keeps a traceback for each operation; deterministic kernels and
    a profiler that is always on make each step slower too.
Before
    torch.autograd.set_detect_anomaly(True)
After
    torch.autograd.set_detect_anomaly(False)
When it is the same
    Anomaly detection computes nothing: the same bits. Kernels that need not be deterministic may sum in another order.
When it is not
    Where a run must be repeated to the bit, deterministic kernels stay on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Cost, Edit, Function, Rewrite, Seen, Site
from hotlap.source.values import full_name

_ANOMALY = ("torch.autograd.set_detect_anomaly", "torch.autograd.anomaly_mode.set_detect_anomaly")
_BLOCK = ("torch.autograd.detect_anomaly", "torch.autograd.anomaly_mode.detect_anomaly")
_SLOW_KERNELS = ("torch.use_deterministic_algorithms",)
_BACKENDS = {"torch.backends.cudnn.deterministic": True, "torch.backends.cudnn.enabled": False}


class DebugLeftOn(Rewrite):
    id = "debug-left-on"
    numerics = Numerics.ROUNDING
    cost = Cost.SWITCH

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for node in function.walk():
            found = _switch(function, node)
            if (
                found is not None
                and not _is_asked_for(function, node)
                and not _is_set_back(function, found[1])
            ):
                switch, name = found
                exact = name in (*_ANOMALY, *_BLOCK)
                yield Site(switch, {"call": name}, Numerics.BITWISE if exact else Numerics.ROUNDING)

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        node, name = site.node, site.values["call"]
        if isinstance(node, ast.Assign):
            return (function.replace(node.value, str(not _BACKENDS[name])),)
        assert isinstance(node, ast.Call)
        if name in _BLOCK:
            called = function.text(node.func).rpartition(".")[0]
            return (function.replace(node, f"{called}.set_detect_anomaly(False)"),) if called else ()
        return (function.replace(node.args[0] if node.args else node.keywords[0].value, "False"),)


def _is_asked_for(function: Function, node: ast.AST) -> bool:
    """Whether a condition decides on it, other than `if __name__ == "__main__"`: then somebody wants it."""
    around = function.parents.get(node)
    while around is not None and around is not function.node:
        if isinstance(around, ast.If) and "__name__" not in ast.unparse(around.test):
            return True
        around = function.parents.get(around)
    return False


def _is_set_back(function: Function, name: str) -> bool:
    """Whether the function sets it twice: then it is on for what stands between."""
    calls = [each.func for each in function.walk() if isinstance(each, ast.Call)]
    bound = [target for each in function.walk() if isinstance(each, ast.Assign) for target in each.targets]
    return sum(full_name(function.module, each) == name for each in [*calls, *bound]) > 1


def _switch(function: Function, node: ast.AST) -> tuple[ast.AST, str] | None:
    """The call or the assignment that turns it on, and the switch's name."""
    match node:
        case ast.Call():
            name = full_name(function.module, node.func)
            given = [*node.args[:1], *(each.value for each in node.keywords if each.arg == "mode")]
            on = bool(given) and ast.unparse(given[0]) == "True"
            if name in (*_ANOMALY, *_SLOW_KERNELS) and on and len(node.args) + len(node.keywords) == 1:
                return node, name
            within = isinstance(function.parents.get(node), ast.withitem)
            return (
                (node, name) if name in _BLOCK and within and isinstance(node.func, ast.Attribute) else None
            )
        case ast.Assign(targets=[ast.Attribute() as target], value=ast.Constant(value=bool() as value)):
            name = full_name(function.module, target)
            return (node, name) if _BACKENDS.get(name) is value else None
    return None
