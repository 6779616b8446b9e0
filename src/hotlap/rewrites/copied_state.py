"""A copy of all weights in every step.

What it is
    `copy.deepcopy(model.state_dict())`, or of the model, inside the loop over batches copies every tensor each time.
Before
    for x, y in loader:
        best = copy.deepcopy(model.state_dict())
After
    # where a validation has shown that it is the best so far:
    best = copy.deepcopy(model.state_dict())
When it is the same
    Where only the last copy is used.
When it is not
    Where each copy is used, as by an average of weights.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import calls, only_argument


class CopiedState(Rewrite):
    id = "copied-state"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for call in calls(function, "copy.deepcopy"):
            given = only_argument(call)
            if given is None or next(function.loops(function.statement(call)), None) is None:
                continue
            state = isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute)
            owner = given.func.value if state and given.func.attr == "state_dict" else given  # type: ignore[attr-defined]
            value = seen.value(owner)
            if value is not None and value.is_a("Module", "Optimizer"):
                yield Site(call, {"call": function.text(call)}, advice=True)

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        return ()
