"""One cell of a DataFrame, read through `.iloc` or `.loc`.

What it is
    `.iloc[row, column]` finds out what kind of index it was given before it reads: tens of microseconds for one
    number. `.iat` reads it.
Before
    label = self.table.iloc[index, 3]
After
    label = self.table.iat[index, 3]
When it is the same
    Always for one row and one column.
When it is not
    For slices, lists or masks, which are not recognised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site

_FASTER = {"iloc": "iat", "loc": "at"}


class ScalarByIloc(Rewrite):
    id = "scalar-by-iloc"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for node in function.walk():
            match node:
                case ast.Subscript(
                    value=ast.Attribute(attr="iloc" | "loc", value=owner),
                    slice=ast.Tuple(elts=[row, column]),
                ):
                    table = seen.value(owner)
                    whole = ("int",) if node.value.attr == "iloc" else ("int", "str")  # type: ignore[attr-defined]
                    kinds = [seen.value(each) for each in (row, column)]
                    cell = all(kind is not None and kind.type in whole for kind in kinds)
                    if table is not None and table.is_a("pandas.core.frame.DataFrame", "DataFrame") and cell:
                        yield Site(node, {"slow": node.value.attr})  # type: ignore[attr-defined]

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        node = site.node
        assert isinstance(node, ast.Subscript)
        assert isinstance(node.value, ast.Attribute)
        end = function.span(node.value)[1]
        slow = node.value.attr
        return (Edit(end - len(slow), end, _FASTER[slow]),)
