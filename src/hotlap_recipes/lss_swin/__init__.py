"""Lift-splat-shoot with a Swin backbone: what is around a car, seen from above, out of its cameras.

From one or six camera images it draws two maps around the car: where vehicles stand, and where one may drive. The
data are laid out as nuScenes, the configuration is written the mm way, and mmengine's Runner trains.

    python -m hotlap_recipes.lss_swin.make_nuscenes --out data/nuscenes
"""

from __future__ import annotations

SIX = (
    "CAM_FRONT_LEFT",
    "CAM_FRONT",
    "CAM_FRONT_RIGHT",
    "CAM_BACK_LEFT",
    "CAM_BACK",
    "CAM_BACK_RIGHT",
)
TARGETS = ("vehicle", "drivable")


class BadInputError(Exception):
    """What the user gave cannot be trained on: what is wrong, with the value, and one remedy."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(f"{what}\n  -> {remedy}" if remedy else what)
