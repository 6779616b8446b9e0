"""A fitted transform or a tokenizer called for one item at a time.

What it is
    `scaler.transform` and tokenizers check their input and build their tables in each call: for one row that is most of
    the time. For all rows at once it is paid once.
Before
    def __getitem__(self, index):
        return self.scaler.transform(self.x[index : index + 1])
After
    def __getitem__(self, index):
        if not hasattr(self, "_transform"):
            self._transform = self.scaler.transform(self.x)
        return self._transform[index : index + 1].copy()
When it is the same
    Transforms that treat each row alone give the same values for all rows at once; sums within a row may be rounded
    differently.
When it is not
    Where the item is changed before the transform, or the whole set does not fit into memory. Tokenizers, and rows that
    are put together in another way, are advice.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import ARRAY, Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import (
    index_name,
    keep,
    kept_name,
    makes_items,
    method_calls,
    only_argument,
    own_name,
    settled,
)
from hotlap.source.values import dotted

_FITTED = ("BaseEstimator", "TransformerMixin")
_TOKENIZERS = ("PreTrainedTokenizerBase", "Tokenizer")


class FittedPerItem(Rewrite):
    id = "fitted-per-item"
    numerics = Numerics.ROUNDING

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        if not makes_items(function):
            return
        called = method_calls(function, "transform", "inverse_transform", "encode", "encode_plus")
        for call, owner in called:
            value = seen.value(owner)
            if value is not None and value.is_a(*_FITTED, *_TOKENIZERS):
                kind = value.type.rpartition(".")[2]
                fits = bool(_edits(function, call, seen)) and value.is_a(*_FITTED)
                yield Site(call, {"call": function.text(call.func), "kind": kind}, advice=not fits)
        for node in function.walk():
            match node:
                case ast.Call(func=ast.Name() | ast.Attribute() as tokenizer) if dotted(tokenizer):
                    value = seen.value(tokenizer)
                    if value is not None and value.is_a(*_TOKENIZERS):
                        kind = value.type.rpartition(".")[2]
                        yield Site(node, {"call": function.text(tokenizer), "kind": kind}, advice=True)

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        assert isinstance(site.node, ast.Call)
        return () if site.advice else _edits(function, site.node, seen)


def _edits(function: Function, call: ast.Call, seen: Seen) -> tuple[Edit, ...]:
    """For rows of an array that the object holds, picked by the item's index alone."""
    given = only_argument(call)
    rows = _rows(function, given) if given is not None else None
    value = seen.value(rows) if rows is not None else None
    fixed = rows is not None and dotted(rows).startswith(f"{own_name(function)}.") and _is_own(function, call)
    if rows is None or value is None or not fixed or not settled(function, call):
        return ()
    table = value.type == ARRAY and value.shape is not None and len(value.shape) == 2
    name, own, index = kept_name(function, call), own_name(function), index_name(function)
    edit = keep(function, call, f"{function.text(call.func)}({function.text(rows)})", name)
    if not table or edit is None:
        return ()
    return (edit, function.replace(call, f"{own}.{name}[[{index}]]"))


def _is_own(function: Function, call: ast.Call) -> bool:
    """Whether the transform is an attribute of the object too: a local name may be another one each time."""
    return isinstance(call.func, ast.Attribute) and dotted(call.func.value).startswith(
        f"{own_name(function)}."
    )


def _rows(function: Function, node: ast.expr) -> ast.expr | None:
    """x of `x[i : i + 1]`, `x[[i]]`, `x[i][None]`, `x[i].reshape(1, -1)` and `[x[i]]`, where i is the item's index."""
    index = index_name(function)
    written = {
        f"[{index}]": False,
        f"{index}:{index} + 1": False,
        index: True,
    }
    match node:
        case ast.Call(func=ast.Attribute(attr="reshape", value=inner), args=args, keywords=[]):
            return _picked(inner, index) if [ast.unparse(each) for each in args] == ["1", "-1"] else None
        case ast.List(elts=[inner]):
            return _picked(inner, index)
        case ast.Subscript(value=ast.Subscript() as inner, slice=ast.Constant(value=None)):
            return _picked(inner, index)
        case ast.Subscript(value=owner) if written.get(ast.unparse(node.slice)) is False:
            return owner
    return None


def _picked(node: ast.expr, index: str) -> ast.expr | None:
    match node:
        case ast.Subscript(value=owner, slice=ast.Name(id=name)) if name == index:
            return owner
    return None
