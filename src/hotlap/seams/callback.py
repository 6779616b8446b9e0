"""What the callbacks of frameworks share: a plan that comes with the callback and goes when training ends."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hotlap.facts.plan import Plan
from hotlap.seams.library import Applied, apply


class Applying:
    """Applies the plan as soon as it is built, which is before the trainer that it is given to.

    A copy in another process (`ddp_spawn`) applies the plan there.
    """

    def __init__(self, plan: Plan | Mapping[str, Any] | str | Path) -> None:
        self._plan = plan
        self._told = False
        self.applied: Applied = apply(plan)

    def tell(self, rank: int) -> None:
        """Once, after the first step: by then everything has been asked for."""
        if not self._told and rank == 0:
            print(self.applied, file=sys.stderr, flush=True)
        self._told = True

    def __getstate__(self) -> dict[str, Any]:
        return {"_plan": self._plan}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_plan"])  # type: ignore[misc]
