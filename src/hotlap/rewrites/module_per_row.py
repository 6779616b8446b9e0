"""A module called for one row, one frame or one set of a batch at a time.

What it is
    Each call launches all of the module's operations for a small piece; for the whole batch it is one call.
Before
    out = torch.stack([self.net(x[i]) for i in range(len(x))])
After
    out = self.net(x)
When it is the same
    Up to rounding, for modules that treat each row alone: linear layers, activations, embeddings, layer norms.
When it is not
    Batch norms mix rows, dropouts draw in another order, and other modules may want a batch of their own: for these
    it is advice.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import TENSOR, Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import calls, only_argument
from hotlap.source.values import dotted, full_name

_ROWWISE = (
    "Linear", "ReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "ELU", "LeakyReLU", "Softplus", "Hardswish", "Embedding",
    "LayerNorm", "RMSNorm", "Identity",
)  # fmt: skip
_LIBRARY = "torch.nn.modules."


class ModulePerRow(Rewrite):
    id = "module-per-row"
    numerics = Numerics.ROUNDING

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for call in calls(function, "torch.stack"):
            if (len(call.args) == 1 and not call.keywords) or _is_first(call):
                found = _parts(function, call.args[0])
            else:
                continue
            if found is None:
                continue
            module, whole = (seen.value(each) for each in found)
            if (
                module is None
                or whole is None
                or not module.is_a("Module")
                or whole.type != TENSOR
                or not whole.shape
            ):
                continue
            rank = len(whole.shape)
            kind = module.type.rpartition(".")[2]
            alone = module.type.startswith(_LIBRARY) and kind in _ROWWISE and (rank > 1 or kind != "Linear")
            yield Site(call, {"call": function.text(found[0]), "size": whole.size}, advice=not alone)

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        call = site.node
        assert isinstance(call, ast.Call)
        found = _parts(function, call.args[0])
        assert found is not None
        module, whole = found
        return (function.replace(call, f"{function.text(module)}({function.text(whole)})"),)


def _is_first(call: ast.Call) -> bool:
    """Whether the pieces are put together along the dimension that was walked."""
    words = [
        *(ast.unparse(each) for each in call.args[1:]),
        *(f"{each.arg}={ast.unparse(each.value)}" for each in call.keywords),
    ]
    return words in (["0"], ["dim=0"])


def _parts(function: Function, node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """The module and the tensor of `[m(row) for row in x]` and `[m(x[i]) for i in range(len(x))]`."""
    match node:
        case ast.ListComp(
            elt=ast.Call(func=module, args=[piece], keywords=[]),
            generators=[ast.comprehension(target=ast.Name(id=name), iter=walked, ifs=[], is_async=0)],
        ) if dotted(module):
            pass
        case _:
            return None
    if isinstance(piece, ast.Name) and piece.id == name and dotted(walked):
        return module, walked
    match piece, walked:
        case ast.Subscript(value=whole, slice=ast.Name(id=index)), ast.Call() if index == name and dotted(
            whole
        ):
            given = only_argument(walked)
            length = ast.unparse(given) if given is not None else ""
            text = ast.unparse(whole)
            counted = (f"len({text})", f"{text}.shape[0]", f"{text}.size(0)")
            known = full_name(function.module, walked.func) == "range"
            return (module, whole) if known and length in counted else None
    return None
