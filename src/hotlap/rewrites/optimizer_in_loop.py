"""An optimizer that is built anew in every epoch.

What it is
    Its moments start from zero each time and are allocated again: the first steps of each epoch are those of a
    training that has just begun.
Before
    for epoch in range(epochs):
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
After
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
When it is the same
    For SGD without momentum only.
When it is not
    For all that keep moments. It is advice: whether they should start anew is for the author to say.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Cost, Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import changes, ends_its_line, indent_of, names_in, starts_its_line, uses
from hotlap.source.values import full_name


class OptimizerInLoop(Rewrite):
    id = "optimizer-in-loop"
    numerics = Numerics.STATISTICAL
    cost = Cost.MEMORY

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for node in function.walk():
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                    package, _, kind = full_name(function.module, call.func).rpartition(".")
                case _:
                    continue
            loop = function.parents.get(node)
            built = package == "torch.optim" and kind[:1].isupper() and isinstance(loop, ast.For)
            if not built or not isinstance(loop, ast.For) or node not in loop.body or uses(call, name):
                continue
            steps = any(isinstance(each, ast.For | ast.While) for one in loop.body for each in ast.walk(one))
            rebuilt = any(
                isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store) and each.id in names_in(call)
                for each in ast.walk(loop)
            )
            own_lines = all(starts_its_line(function, each) for each in (node, loop)) and ends_its_line(
                function, node
            )
            if steps and not rebuilt and own_lines and not changes(loop.iter, name):
                yield Site(node, {"name": name, "kind": kind}, advice=True)

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        node = site.node
        assert isinstance(node, ast.Assign)
        loop = function.parents[node]
        inner, outer = indent_of(function, node), indent_of(function, loop)
        start = function.starts[loop.lineno - 1]  # type: ignore[attr-defined]
        last = min(node.end_lineno or node.lineno, len(function.starts) - 1)
        lines = function.text(node).split("\n")
        moved = "\n".join(each.replace(inner, outer, 1) if each.startswith(inner) else each for each in lines)
        return (
            Edit(start, start, f"{outer}{moved}\n"),
            Edit(function.starts[node.lineno - 1], function.starts[last], ""),
        )
