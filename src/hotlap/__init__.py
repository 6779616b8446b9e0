"""hotlap finds out why a PyTorch training run is slow, makes it fast, and proves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["HFCallback", "LightningCallback", "Plan", "apply", "profile", "read_plan"]

if TYPE_CHECKING:
    from hotlap.facts.plan import Plan
    from hotlap.notebook.profiling import profile
    from hotlap.plan.file import read_plan
    from hotlap.seams.hf_callback import HFCallback
    from hotlap.seams.library import apply
    from hotlap.seams.lightning_callback import LightningCallback

# Where each public name lives: imported when it is first asked for, as most of them need torch.
_HOMES = {
    "HFCallback": "hotlap.seams.hf_callback",
    "LightningCallback": "hotlap.seams.lightning_callback",
    "Plan": "hotlap.facts.plan",
    "apply": "hotlap.seams.library",
    "load_ipython_extension": "hotlap.notebook.profiling",
    "profile": "hotlap.notebook.profiling",
    "read_plan": "hotlap.plan.file",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hotlap' has no attribute '{name}'")
    import importlib

    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
