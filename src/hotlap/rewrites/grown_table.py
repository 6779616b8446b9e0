"""A DataFrame that grows by one piece in each turn of a loop.

What it is
    `pd.concat([table, rows])` and `table.append(rows)` copy the whole table in every turn: the time grows with the
    square of the number of pieces.
Before
    for part in parts:
        table = pd.concat([table, part], ignore_index=True)
After
    table_parts = [table]
    for part in parts:
        table_parts.append(part)
    table = pd.concat(table_parts, ignore_index=True)
When it is the same
    Where all pieces have columns of the same types: the same rows in the same order.
When it is not
    Where an empty table is the first piece, pandas may choose other types for its columns. Where the loop looks at the
    table it is not recognised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import (
    ends_its_line,
    line_after,
    line_before,
    local_name,
    names_in,
    starts_its_line,
    uses,
)
from hotlap.source.values import full_name


class GrownTable(Rewrite):
    id = "grown-table"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for node in function.walk():
            found = _parts(function, node)
            if found is None or not isinstance(node, ast.Assign):
                continue
            name, piece, _ = found
            loop = next(function.loops(node), None)
            table, added = seen.value(node.targets[0]), seen.value(piece)
            if loop is None or table is None or not table.is_a("DataFrame") or loop.orelse:
                continue
            apart = uses(loop, name) == 2 and f"{name}_parts" not in names_in(function.node)
            whole = starts_its_line(function, loop) and starts_its_line(function, node)
            ends = any(
                isinstance(each, ast.Return | ast.Yield | ast.Raise | ast.Try) for each in ast.walk(loop)
            )
            built = (
                isinstance(piece, ast.Call) and full_name(function.module, piece.func) == "pandas.DataFrame"
            )
            fits = built or (added is not None and added.is_a("DataFrame"))
            if apart and whole and fits and not ends and ends_its_line(function, loop):
                yield Site(node, {"name": name})

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        node, name = site.node, site.values["name"]
        found = _parts(function, node)
        assert found is not None
        _, piece, words = found
        loop, parts = next(function.loops(node)), f"{name}_parts"
        joined = ", ".join([parts, *words])
        return (
            line_before(function, loop, f"{parts} = [{name}]"),
            function.replace(node, f"{parts}.append({function.text(piece)})"),
            line_after(function, loop, f"{name} = {local_name(function, 'pandas')}.concat({joined})"),
        )


def _parts(function: Function, node: ast.AST) -> tuple[str, ast.expr, list[str]] | None:
    """The table's name, what is added, and the other arguments as they are written."""
    match node:
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.Call(args=[ast.List(elts=[ast.Name(id=first), piece])]) as call,
        ) if full_name(function.module, call.func) == "pandas.concat":
            pass
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.Call(func=ast.Attribute(attr="append", value=ast.Name(id=first)), args=[piece]) as call,
        ):
            pass
        case _:
            return None
    fixed = all(isinstance(each.value, ast.Constant) and each.arg for each in call.keywords)
    known = fixed and name == first and not uses(piece, name) and bool(local_name(function, "pandas"))
    return (name, piece, [function.text(each) for each in call.keywords]) if known else None
