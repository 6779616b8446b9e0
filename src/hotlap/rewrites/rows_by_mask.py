"""Rows of a table looked for in all of it, for every item.

What it is
    `table[table.id == key]`, `query` and `groupby` compare the whole column each time an item is made. Grouped once,
    the rows of a key are found at once.
Before
    def __getitem__(self, index):
        rows = self.table[self.table["id"] == key]
After
    def __getitem__(self, index):
        if not hasattr(self, "_rows"):
            self._rows = dict(iter(self.table.groupby("id")))
        rows = self._rows.get(key, self.table.iloc[:0])
When it is the same
    Where the table does not change while the script trains: the same rows in the same order.
When it is not
    Where the rows are changed in place; that is not recognised. `query` and other conditions are advice.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import changes, keep, kept_name, makes_items, own_name, same, settled, uses
from hotlap.source.values import dotted


class RowsByMask(Rewrite):
    id = "rows-by-mask"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        if not makes_items(function):
            return
        for node in function.walk():
            match node:
                case ast.Subscript(value=ast.Name() | ast.Attribute() as owner, slice=ast.Compare()):
                    call = f"{function.text(owner)}[{function.text(node.slice)}]"
                case ast.Call(func=ast.Attribute(attr="groupby" | "query", value=owner)):
                    call = function.text(node.func)
                case _:
                    continue
            table = seen.value(owner)
            if table is not None and table.is_a("DataFrame"):
                yield Site(node, {"call": call}, advice=not self._edits(function, node))

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        return self._edits(function, site.node)

    def _edits(self, function: Function, node: ast.AST) -> tuple[Edit, ...]:
        own, place = own_name(function), function.parents.get(node)
        whole: ast.AST = node
        match node:
            case ast.Subscript(
                value=owner, slice=ast.Compare(left=left, ops=[ast.Eq()], comparators=[key])
            ) if _column(left, owner):
                column, text = (
                    _column(left, owner),
                    f".get({function.text(key)}, {function.text(owner)}.iloc[:0])",
                )
            case ast.Call(
                func=ast.Attribute(attr="groupby", value=owner),
                args=[ast.Constant(value=str(column))],
                keywords=[],
            ):
                match place, function.parents.get(place) if place is not None else None:
                    case ast.Attribute(attr="get_group"), ast.Call(args=[key], keywords=[]) as got:
                        whole, text = got, f"[{function.text(key)}]"
                    case _:
                        return ()
            case _:
                return ()
        if (
            not own
            or not dotted(owner).startswith(f"{own}.")
            or not settled(function, owner)
            or _changed(function, whole)
        ):
            return ()
        name = kept_name(function, node if isinstance(node, ast.Subscript) else whole)
        ahead = keep(function, whole, f'dict(iter({function.text(owner)}.groupby("{column}")))', name)  # type: ignore[arg-type]
        return (ahead, function.replace(whole, f"{own}.{name}{text}")) if ahead is not None else ()


def _column(node: ast.expr, owner: ast.expr) -> str:
    """The column of the same table."""
    match node:
        case ast.Subscript(value=table, slice=ast.Constant(value=str(name))) if same(table, owner):
            return name
        case ast.Attribute(value=table, attr=name) if same(table, owner):
            return name
    return ""


def _changed(function: Function, node: ast.AST) -> bool:
    """Whether the rows have a name through which the function changes them."""
    match function.parents.get(node):
        case ast.Assign(targets=[ast.Name(id=name)]) as bound:
            rest = [
                each for each in getattr(function.node, "body", []) if each is not bound and uses(each, name)
            ]
            return any(changes(each, name) for each in rest)
    return False
