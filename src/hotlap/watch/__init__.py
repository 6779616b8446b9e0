"""Live health of long runs: monitors under one budget of overhead, and what a running job looks like from outside.

Of the public names, those that need torch import it when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Budget", "Posterior", "PosteriorMonitor", "TrainingMonitor", "Verdict", "Word"]

if TYPE_CHECKING:
    from hotlap.watch.budget import Budget
    from hotlap.watch.collapse import Posterior, Verdict
    from hotlap.watch.monitors import Word
    from hotlap.watch.posterior import PosteriorMonitor
    from hotlap.watch.training import TrainingMonitor

_HOMES = {
    "Budget": "hotlap.watch.budget",
    "Posterior": "hotlap.watch.collapse",
    "PosteriorMonitor": "hotlap.watch.posterior",
    "TrainingMonitor": "hotlap.watch.training",
    "Verdict": "hotlap.watch.collapse",
    "Word": "hotlap.watch.monitors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hotlap.watch' has no attribute '{name}'")
    import importlib

    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
