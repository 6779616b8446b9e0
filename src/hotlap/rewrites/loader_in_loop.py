"""A DataLoader that is built anew in every epoch.

What it is
    The loader, its sampler and its workers are made again for each epoch.
Before
    for epoch in range(epochs):
        loader = DataLoader(dataset, batch_size=32, shuffle=True)
After
    loader = DataLoader(dataset, batch_size=32, shuffle=True)
    for epoch in range(epochs):
When it is the same
    Building a loader draws no random numbers: each epoch has the same batches. Only what does not depend on the loop
    is recognised.
When it is not
    Where a dataset counts how often it is put into a loader.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import ends_its_line, indent_of, names_in, starts_its_line, uses
from hotlap.source.values import full_name

_LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")


class LoaderInLoop(Rewrite):
    id = "loader-in-loop"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for node in function.walk():
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                    if full_name(function.module, call.func) not in _LOADERS:
                        continue
                case _:
                    continue
            loop = function.parents.get(node)
            if not isinstance(loop, ast.For) or node not in loop.body:
                continue
            bound = {
                each.id
                for each in ast.walk(loop)
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            }
            called = any(isinstance(each, ast.Call) for each in ast.walk(call) if each is not call)
            own_lines = all(starts_its_line(function, each) for each in (node, loop)) and ends_its_line(
                function, node
            )
            once = sum(each.id == name and isinstance(each.ctx, ast.Store) for each in _names(loop)) == 1
            if (
                not (names_in(call) - {name}) & bound
                and not called
                and own_lines
                and once
                and uses(call, name) == 0
            ):
                yield Site(node, {"name": name}, lines=(loop.lineno, loop.end_lineno or loop.lineno))

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        node = site.node
        loop = function.parents[node]
        last = min(getattr(node, "end_lineno", 1), len(function.starts) - 1)
        inner, outer = indent_of(function, node), indent_of(function, loop)
        start = function.starts[loop.lineno - 1]  # type: ignore[attr-defined]
        lines = function.text(node).split("\n")
        moved = "\n".join(each.replace(inner, outer, 1) if each.startswith(inner) else each for each in lines)
        return (
            Edit(start, start, f"{outer}{moved}\n"),
            Edit(function.starts[node.lineno - 1], function.starts[last], ""),  # type: ignore[attr-defined]
        )


def _names(tree: ast.AST) -> Iterable[ast.Name]:
    return (each for each in ast.walk(tree) if isinstance(each, ast.Name))
