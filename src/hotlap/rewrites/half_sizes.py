"""Sizes that half-precision kernels cannot divide by eight.

What it is
    Tensor cores take pieces of eight: with a last size of 1003 the product is padded, or a slower kernel is chosen.
Before
    self.head = nn.Linear(512, 1003)
After
    self.head = nn.Linear(512, 1008)
When it is the same
    Outputs beyond the old size are new: the loss must not count them, as cross entropy does with targets that never
    name them.
When it is not
    Weights are drawn for more outputs: it is another model, and advice.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import lru_cache

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Cost, Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import calls

_LAYERS = {
    "torch.nn.Linear": ("in_features", "out_features"),
    "torch.nn.Embedding": ("num_embeddings", "embedding_dim"),
}
_HALF = frozenset({"autocast", "half", "float16", "bfloat16", "GradScaler", "bf16", "fp16"})
_MULTIPLE, _SMALL = 8, 64  # sizes below that are a matter of taste: a head of ten classes is ten classes


class HalfSizes(Rewrite):
    id = "half-sizes"
    numerics = Numerics.STATISTICAL
    cost = Cost.SWITCH

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        if not _is_half(function.module):
            return
        for call in calls(function, *_LAYERS):
            for each in _sizes(call):
                yield Site(each, {"size": str(each.value), "better": str(_rounded(each.value))}, advice=True)  # type: ignore[arg-type]

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        return (function.replace(site.node, site.values["better"]),)


@lru_cache(maxsize=64)
def _is_half(module: ast.Module) -> bool:
    named = {each.attr for each in ast.walk(module) if isinstance(each, ast.Attribute)}
    named |= {each.id for each in ast.walk(module) if isinstance(each, ast.Name)}
    words = {
        str(each.value)
        for each in ast.walk(module)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }
    return bool(_HALF & named) or bool({"bf16-mixed", "16-mixed", "bf16", "fp16"} & words)


def _sizes(call: ast.Call) -> list[ast.Constant]:
    given = [
        *call.args[:2],
        *(
            each.value
            for each in call.keywords
            if each.arg in ("in_features", "out_features", "num_embeddings", "embedding_dim")
        ),
    ]
    return [
        each
        for each in given
        if isinstance(each, ast.Constant)
        and type(each.value) is int
        and each.value > _SMALL
        and each.value % _MULTIPLE
    ]


def _rounded(size: int) -> int:
    return -(-size // _MULTIPLE) * _MULTIPLE
