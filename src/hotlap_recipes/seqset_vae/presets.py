"""Configurations by name. What is given on the command line wins over a preset, a preset over the defaults."""

from __future__ import annotations

from typing import Any

DEFAULTS: dict[str, Any] = {
    "batch_size": 4,
    "num_workers": 0,
    "pin_memory": False,
    "max_sequence_length": 1000,
    "use_dynamic_padding": False,
    "bucket_by_length": False,
    "packed": True,
    "precision": "32",
    "gradient_accumulation_steps": 1,
    "compile_model": False,
    "fast_detection": False,
    "disable_metrics_monitoring": False,
    "epochs": 10,
    "max_steps": -1,
    "size": "base",
}

# As such scripts are written today: Parquet read for each item, padding to the maximum, a picture every 20 steps.
NAIVE: dict[str, Any] = {"packed": False, "use_dynamic_padding": False, "bucket_by_length": False}

PRESETS: dict[str, dict[str, Any]] = {
    # To see that all works: one epoch of the small network.
    "quick": {"epochs": 1, "size": "small", "use_dynamic_padding": True, "fast_detection": True},
    # What was measured to pay, and nothing that guides only promise: docs/recipes/seqset_vae.md has the figures.
    "max": {"use_dynamic_padding": True, "bucket_by_length": True, "fast_detection": True},
    # A batch is as large as its longest sequence: short ones, few at a time, and as many in a step as by default.
    "memory": {
        "batch_size": 1,
        "gradient_accumulation_steps": 4,
        "max_sequence_length": 512,
        "use_dynamic_padding": True,
    },
    # One process, a few steps, nothing beside the training: what fails, fails where it is written.
    "debug": {
        "size": "tiny",
        "epochs": 1,
        "max_steps": 20,
        "use_dynamic_padding": True,
        "disable_metrics_monitoring": True,
    },
}

BUDGETS = {"default": "1%", "fast_detection": "0.2%", "disable_metrics_monitoring": "off"}
"""Shares of the training time that the monitor may take."""


def resolved(given: dict[str, Any], preset: str | None, naive: bool) -> dict[str, Any]:
    """Defaults, then the naive way, then the preset, then what was given."""
    return DEFAULTS | (NAIVE if naive else {}) | (PRESETS[preset] if preset else {}) | given


def monitor_budget(options: dict[str, Any]) -> str:
    asked = (name for name in ("disable_metrics_monitoring", "fast_detection") if options[name])
    return BUDGETS[next(asked, "default")]
