"""Things as boxes that can be painted: a car is tyres, body and cabin, a person has a head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hotlap_recipes.lss_swin.town import Array, Points
from hotlap_recipes.lss_swin.town.traffic import Thing

FACES = np.array([[0, 1, 5, 4], [1, 2, 6, 5], [2, 3, 7, 6], [3, 0, 4, 7], [4, 5, 6, 7]])
"""Corners of the front, the right, the back, the left and the top; nobody sees the bottom."""
_SHADES = np.array([0.82, 0.95, 0.66, 0.88, 1.12])
_DARK, _GLASS, _SKIN = (38.0, 38.0, 40.0), (52.0, 60.0, 72.0), (205.0, 160.0, 130.0)


@dataclass(frozen=True)
class Part:
    """A box within a thing: from `low` to `high` of its height, as shares of its size."""

    low: float
    high: float
    length: float = 1.0
    width: float = 1.0
    colour: tuple[float, float, float] | None = None
    roof: bool = False


_CAR = (
    Part(0.0, 0.28, 0.96, 0.96, _DARK),
    Part(0.18, 0.6),
    Part(0.6, 1.0, 0.55, 0.88, _GLASS, roof=True),
)
_VAN = (
    Part(0.0, 0.2, 0.96, 0.96, _DARK),
    Part(0.14, 0.5),
    Part(0.5, 0.78, 1.0, 1.0, _GLASS),
    Part(0.78, 1.0),
)
_PERSON = (Part(0.0, 0.48, 0.45, 0.6, _DARK), Part(0.48, 0.85, 0.5, 0.8), Part(0.85, 1.0, 0.3, 0.3, _SKIN))
_SHAPES: dict[str, tuple[Part, ...]] = {
    "vehicle.car": _CAR,
    "vehicle.truck": _VAN,
    "vehicle.bus.rigid": _VAN,
    "vehicle.motorcycle": (Part(0.0, 0.5, 1.0, 0.4, _DARK), Part(0.4, 0.65, 0.7, 0.6), Part(0.65, 1.0, 0.25, 0.8)),
    "human.pedestrian.adult": _PERSON,
}  # fmt: skip
_BLOCK = (Part(0.0, 1.0),)


@dataclass(frozen=True)
class Boxes:
    """All parts of all things at one moment, in the town's frame."""

    corners: Array  # (n, 8, 3): four below, four above
    colours: Array  # (n, 5, 3) blue, green, red, by face
    middle: Points  # of the thing to which the part belongs

    def facing(self, eye: Array) -> Array:
        """(n, 5): which faces can be seen from there."""
        quads = self.corners[:, FACES]
        centres = quads.mean(axis=2)
        normals = np.cross(quads[:, :, 1] - quads[:, :, 0], quads[:, :, 2] - quads[:, :, 0])
        outward = np.sign(((centres - self.corners.mean(axis=1, keepdims=True)) * normals).sum(-1))
        seen: Array = ((eye - centres) * normals).sum(-1) * outward > 0
        return seen


def boxes_at(things: Sequence[Thing], frame: int) -> Boxes:
    """The things as they are at a key frame."""
    parts = [(thing, part) for thing in things for part in _SHAPES.get(thing.category, _BLOCK)]
    corners = [_corners(thing, part, frame) for thing, part in parts]
    colours = [_colours(thing, part) for thing, part in parts]
    middles = [thing.position[frame] for thing, _ in parts]
    return Boxes(
        np.array(corners).reshape(-1, 8, 3),
        np.array(colours).reshape(-1, 5, 3),
        np.array(middles).reshape(-1, 2),
    )


def _corners(thing: Thing, part: Part, frame: int) -> Array:
    width, length, height = thing.size
    ahead = np.array([1, 1, -1, -1]) * length * part.length / 2
    aside = np.array([1, -1, -1, 1]) * width * part.width / 2
    cos, sin = np.cos(thing.yaw[frame]), np.sin(thing.yaw[frame])
    x = thing.position[frame, 0] + ahead * cos - aside * sin
    y = thing.position[frame, 1] + ahead * sin + aside * cos
    levels = np.repeat([part.low * height, part.high * height], 4)
    return np.stack([np.tile(x, 2), np.tile(y, 2), levels], axis=1)


def _colours(thing: Thing, part: Part) -> Array:
    rgb = np.repeat([part.colour or thing.colour], len(FACES), axis=0)
    if part.roof:
        rgb[-1] = thing.colour
    shaded: Array = np.minimum(rgb * _SHADES[:, None], 255)[:, ::-1]
    return shaded
