"""A transform, a pattern or a tokenizer that is built for every item.

What it is
    A resampler computes its filter, a spectrogram its window, a tokenizer reads its vocabulary, each time an item is
    made.
Before
    def __getitem__(self, index):
        resample = torchaudio.transforms.Resample(44100, 16000)
After
    def __getitem__(self, index):
        if not hasattr(self, "_resample"):
            self._resample = torchaudio.transforms.Resample(44100, 16000)
        resample = self._resample
When it is the same
    Where what it is built with does not depend on the item: only that is recognised.
When it is not
    Where the object keeps something from item to item. It is advice outside of methods.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import keep, kept_name, makes_items, names_in, own_name, settled
from hotlap.source.values import full_name

_PACKAGES = (
    "torchaudio.transforms.",
    "torchvision.transforms.",
    "librosa.filters.",
    "sklearn.preprocessing.",
)
_EXACTLY = ("re.compile",)


class BuiltPerItem(Rewrite):
    id = "built-per-item"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        if not makes_items(function):
            return
        own = {
            each.id
            for each in function.walk()
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
        own |= {each.arg for each in function.node.args.args[1:]}  # type: ignore[union-attr]
        for node in function.walk():
            if not isinstance(node, ast.Call):
                continue
            name = full_name(function.module, node.func)
            last = name.rpartition(".")[2]
            builds = (name.startswith(_PACKAGES) and last[:1].isupper()) or last == "from_pretrained"
            within = isinstance(function.parents.get(node), ast.List | ast.Call) and _is_built(function, node)
            if (builds or name in _EXACTLY) and not within and not names_in(node) & own:
                fits = bool(self._edits(function, node)) and settled(function, node) and not _fitted(function)
                yield Site(node, {"call": function.text(node.func)}, advice=not fits)

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        return () if site.advice else self._edits(function, site.node)

    def _edits(self, function: Function, node: ast.AST) -> tuple[Edit, ...]:
        assert isinstance(node, ast.Call)
        name = kept_name(function, node)
        edit = keep(function, node, function.text(node), name)
        return (edit, function.replace(node, f"{own_name(function)}.{name}")) if edit is not None else ()


def _fitted(function: Function) -> bool:
    """Whether it learns from the item."""
    names = {each.attr for each in function.walk() if isinstance(each, ast.Attribute)}
    return bool(names & {"fit", "fit_transform", "partial_fit"})


def _is_built(function: Function, node: ast.AST) -> bool:
    """Whether it is a part of another one that is built here."""
    parent = function.parents.get(node)
    while parent is not None and not isinstance(parent, ast.stmt):
        if isinstance(parent, ast.Call) and full_name(function.module, parent.func).startswith(_PACKAGES):
            return True
        parent = function.parents.get(parent)
    return False
