"""A DataFrame's row picked by `.iloc` for every item.

What it is
    pandas builds a Series for the row: tens to hundreds of microseconds for a few values.
Before
    def __getitem__(self, index):
        row = self.table.iloc[index]
        image = load(row["path"])
After
    def __getitem__(self, index):
        if not hasattr(self, "_row"):
            self._row = {name: column.array for name, column in self.table.items()}
        image = load(self._row["path"][index])
When it is the same
    Where the row is used by names of columns alone: the same values. A table of numbers of different types is an
    exception: a row of it has one type for all.
When it is not
    Where the table changes while the script trains. It is advice where the row itself is handed on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import index_name, keep, kept_name, makes_items, own_name, settled, starts_its_line, uses
from hotlap.source.values import dotted

_OF_SERIES = frozenset({"values", "name", "index", "array", "dtype", "size", "shape", "T"})


class RowByIloc(Rewrite):
    id = "row-by-iloc"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        if not makes_items(function):
            return
        for node in function.walk():
            match node:
                case ast.Subscript(value=ast.Attribute(attr="iloc" | "loc", value=owner), slice=ast.Tuple()):
                    continue
                case ast.Subscript(value=ast.Attribute(attr="iloc" | "loc", value=owner)):
                    call = f"{function.text(node.value)}[...]"
                case _:
                    continue
            table = seen.value(owner)
            if table is not None and table.is_a("DataFrame"):
                yield Site(node, {"call": call}, advice=not self._edits(function, node))

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        assert isinstance(site.node, ast.Subscript)
        return self._edits(function, site.node)

    def _edits(self, function: Function, node: ast.Subscript) -> tuple[Edit, ...]:
        """Of a row that is used by the names of its columns alone."""
        assert isinstance(node.value, ast.Attribute)
        table, own, index = node.value.value, own_name(function), index_name(function)
        picked = isinstance(node.slice, ast.Name) and node.slice.id == index and node.value.attr == "iloc"
        if not (picked and dotted(table).startswith(f"{own}.") and settled(function, node)):
            return ()
        if any(
            isinstance(each, ast.Name) and each.id == index and isinstance(each.ctx, ast.Store)
            for each in function.walk()
        ):
            return ()
        name = kept_name(function, node)
        text = f"{{name: column.array for name, column in {function.text(table)}.items()}}"
        ahead = keep(function, node, text, name)
        reads = _reads(function, node)
        if ahead is None or reads is None:
            return ()
        edits = [
            ahead,
            *(function.replace(each, f"{own}.{name}[{column}][{index}]") for each, column in reads),
        ]
        statement = function.statement(node)
        if isinstance(statement, ast.Assign) and statement.value is node:
            start = function.starts[statement.lineno - 1]
            last = statement.end_lineno or statement.lineno
            end = function.starts[last] if last < len(function.starts) else len(function.source)
            edits[0] = Edit(start, end, ahead.text)
        return tuple(edits)


def _reads(function: Function, node: ast.Subscript) -> list[tuple[ast.AST, str]] | None:
    """Where columns of the row are read, each with the column's text; None where the row is used otherwise."""
    parent = function.parents[node]
    if not isinstance(parent, ast.Assign):
        column = _column(parent)
        outer = function.parents.get(parent)
        called = isinstance(outer, ast.Call) and outer.func is parent
        return [(parent, column)] if column and not called else None
    match parent:
        case ast.Assign(targets=[ast.Name(id=row)]) if starts_its_line(function, parent):
            pass
        case _:
            return None
    found: list[tuple[ast.AST, str]] = []
    for each in ast.walk(function.node):
        if isinstance(each, ast.Name) and each.id == row and each is not parent.targets[0]:
            read = function.parents[each]
            outer = function.parents[read]
            column = _column(read)
            if not column or (isinstance(outer, ast.Call) and outer.func is read):
                return None
            found.append((read, column))
    return found if found and uses(function.node, row) == len(found) + 1 else None


def _column(node: ast.AST) -> str:
    match node:
        case ast.Subscript(slice=ast.Constant(value=str()) as column, ctx=ast.Load()):
            return ast.unparse(column).replace("'", '"')
        case ast.Attribute(attr=name, ctx=ast.Load()) if name not in _OF_SERIES:
            return f'"{name}"'
    return ""
