"""The streets of a town, and all that lies flat on the ground.

A town has two quarters with 80 m of grass between them. Scenes for training are filmed in the western one, scenes for
validation in the eastern one, so that no camera of one ever sees a place of the other. Streets sway, and no two have
the same width: which way they go is to be seen, not to be guessed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from hotlap_recipes.lss_swin.town import Array, Points

CANVAS = (560.0, 300.0)
LOCATIONS = ("boston-seaport", "singapore-onenorth", "singapore-queenstown", "singapore-hollandvillage")
PARKING = 2.2
"""Metres at each edge of a street where cars are parked."""
WALKWAY = 3.0
_WEST, _EAST = (45.0, 115.0, 185.0), (375.0, 445.0, 515.0)
_ROWS = (40.0, 112.0, 186.0, 260.0)
_SWAY = 7.0


@dataclass(frozen=True)
class Street:
    """Runs from one edge of the town to the other along `axis`: 0 to the east, 1 to the north."""

    axis: int
    middle: float
    sway: float
    wave: float
    phase: float
    half_width: float

    @property
    def lane(self) -> float:
        """How far from the middle one drives."""
        return (self.half_width - PARKING) / 2

    def across(self, along: Array) -> Array:
        swayed: Array = self.middle + self.sway * np.sin(along / self.wave + self.phase)
        return swayed

    def places(self, along: Array, offset: float, onward: float = 1.0) -> tuple[Points, Array]:
        """Points and yaw of who goes along the street or, with `onward` -1, back, `offset` metres to the right."""
        slope = self.sway / self.wave * np.cos(along / self.wave + self.phase)
        ahead = np.stack([np.ones_like(slope), slope], axis=-1) / np.hypot(slope, 1.0)[..., None] * onward
        points = np.stack([along, self.across(along)], axis=-1)
        if self.axis == 1:
            points, ahead = np.flip(points, axis=-1), np.flip(ahead, axis=-1)
        right = np.stack([ahead[..., 1], -ahead[..., 0]], axis=-1)
        return points + right * offset, np.arctan2(ahead[..., 1], ahead[..., 0])

    def line(self, start: float, end: float, offset: float = 0.0, step: float = 2.0) -> Points:
        """Points from `start` to `end`, `offset` metres to the right of who walks that way."""
        along = np.linspace(start, end, max(2, round(abs(end - start) / step) + 1))
        return self.places(along, offset, float(np.sign(end - start)))[0]

    def strip(self, start: float, end: float, left: float, right: float) -> Points:
        """The polygon between two offsets."""
        return np.concatenate([self.line(start, end, left), self.line(start, end, right)[::-1]])


@dataclass(frozen=True)
class Block:
    """A piece of a street between two crossings, in metres along it."""

    street: Street
    start: float
    end: float


@dataclass(frozen=True)
class Town:
    location: str
    columns: tuple[Street, ...]
    rows: tuple[Street, ...]

    @property
    def keeps_left(self) -> bool:
        return self.location.startswith("singapore")

    def quarter(self, split: str) -> tuple[Street, ...]:
        """The columns among which the scenes of a split are filmed."""
        half = len(self.columns) // 2
        return self.columns[:half] if split == "train" else self.columns[half:]

    def blocks(self) -> Iterator[Block]:
        for street in (*self.columns, *self.rows):
            crossed = self.rows if street.axis else self.columns
            gaps = [(float(crossing(street, each)[street.axis]), each.half_width) for each in crossed]
            edges = [0.0, *(at + side * (room + 4) for at, room in gaps for side in (-1, 1))]
            edges.append(CANVAS[street.axis])
            yield from (Block(street, *ends) for ends in list(pairwise(edges))[::2])


def crossing(one: Street, other: Street) -> Points:
    """Where two streets of different axes meet; streets are never steep, so this converges at once."""
    column, row = (one, other) if one.axis else (other, one)
    x, y = np.array(column.middle), np.array(row.middle)
    for _ in range(30):
        x, y = column.across(y), row.across(x)
    return np.stack([x, y])


@cache
def town_of(location: str) -> Town:
    """The same town for the same name, always."""
    rng = np.random.default_rng(zlib.crc32(location.encode()))

    def street(axis: int, middle: float) -> Street:
        return Street(
            axis,
            middle + rng.uniform(-8, 8),
            rng.uniform(0.4, 1.0) * _SWAY,
            rng.uniform(22, 34),
            rng.uniform(0, 2 * np.pi),
            rng.choice([5.5, 6.5, 8.0, 9.5]),
        )

    columns = tuple(street(1, middle) for middle in (*_WEST, *_EAST))
    return Town(location, columns, tuple(street(0, middle) for middle in _ROWS))


Layers = dict[str, list[Points]]


@cache
def layers_of(town: Town) -> Layers:
    """Polygons by the names of the nuScenes map layers; `lane_divider` holds lines."""
    layers: Layers = {name: [] for name in ("drivable_area", "walkway", "ped_crossing", "carpark_area")}
    layers["lane_divider"] = []
    rng = np.random.default_rng(len(town.location))
    for street in (*town.columns, *town.rows):
        room = street.half_width
        layers["drivable_area"].append(street.strip(0, CANVAS[street.axis], -room, room))
    for block in town.blocks():
        street, start, end = block.street, block.start, block.end
        room = street.half_width
        for side in (-1, 1):
            layers["walkway"].append(street.strip(start, end, side * room, side * (room + WALKWAY)))
        layers["lane_divider"].append(street.line(start, end))
        if end - start > 30:
            layers["ped_crossing"] += [
                street.strip(at, at + 3.5, -room, room) for at in (start + 0.5, end - 4)
            ]
        if end - start > 30 and rng.random() < 0.5:
            inner = room + WALKWAY
            layers["carpark_area"].append(street.strip(start + 8, end - 8, inner, inner + 10))
    return layers
