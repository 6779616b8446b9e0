"""Which scenes train and which validate: the official split of v1.0-mini, where each was filmed, and by which car."""

from __future__ import annotations

MINI = {
    "train": (
        "scene-0061", "scene-0553", "scene-0655", "scene-0757", "scene-0796", "scene-1077", "scene-1094", "scene-1100",
    ),
    "val": ("scene-0103", "scene-0916"),
}  # fmt: skip
