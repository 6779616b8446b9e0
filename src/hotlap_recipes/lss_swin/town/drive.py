"""The way of the car: from crossing to crossing, turning often, on its side of the street."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hotlap_recipes.lss_swin.town import Array, Points
from hotlap_recipes.lss_swin.town.streets import Street, Town, crossing

KEY_FRAME_SECONDS = 0.5
_STRAIGHT = 0.3
"""How likely the car goes straight on at a crossing. It turns often, because on a straight street the road is always
in the same place of the picture, and a model that has learned one constant map looks as if it could see."""
_ROUNDING = 7.0
"""Metres before a crossing at which a turn begins."""
_STEP = 0.25

Node = tuple[int, int]


@dataclass(frozen=True)
class Drive:
    """Where the car is at each key frame, in metres and radians."""

    position: Points
    yaw: Array

    def __len__(self) -> int:
        return len(self.yaw)


def drive_through(town: Town, split: str, frames: int, rng: np.random.Generator) -> Drive:
    """A random drive of so many key frames through the quarter of a split."""
    pace = (
        KEY_FRAME_SECONDS * rng.uniform(6, 9) * (1 + 0.35 * np.sin(np.arange(frames) / 7 + rng.uniform(0, 6)))
    )
    travelled = np.cumsum(pace)
    path = _smooth(_legs(town, town.quarter(split), travelled[-1] + 10, rng))
    direction = np.gradient(path, axis=0)
    at = np.round(travelled / _STEP).astype(int)
    yaw = np.arctan2(direction[at, 1], direction[at, 0]) + rng.normal(0, 0.02, frames)
    return Drive(path[at], yaw)


def _legs(town: Town, columns: tuple[Street, ...], metres: float, rng: np.random.Generator) -> Points:
    """The pieces between the crossings, each without its ends."""
    here, there = _start(len(columns), len(town.rows), rng)
    pieces: list[Points] = []
    length = 0.0
    while length < metres:
        street = columns[here[0]] if here[0] == there[0] else town.rows[here[1]]
        ends = [crossing(columns[column], town.rows[row])[street.axis] for column, row in (here, there)]
        trim = np.sign(ends[1] - ends[0]) * _ROUNDING
        side = -street.lane if town.keeps_left else street.lane
        pieces.append(street.line(ends[0] + trim, ends[1] - trim, side))
        length += abs(ends[1] - ends[0]) - 2 * _ROUNDING
        here, there = there, _next(here, there, len(columns), len(town.rows), rng)
    return np.concatenate(pieces)


def _start(columns: int, rows: int, rng: np.random.Generator) -> tuple[Node, Node]:
    here = (int(rng.integers(columns)), int(rng.integers(rows)))
    return here, _choose(_neighbours(here, columns, rows), rng)


def _next(last: Node, here: Node, columns: int, rows: int, rng: np.random.Generator) -> Node:
    straight = (2 * here[0] - last[0], 2 * here[1] - last[1])
    ways = [node for node in _neighbours(here, columns, rows) if node != last]
    turns = [node for node in ways if node != straight]
    return straight if straight in ways and (rng.random() < _STRAIGHT or not turns) else _choose(turns, rng)


def _neighbours(node: Node, columns: int, rows: int) -> list[Node]:
    ways = [(node[0] + dx, node[1] + dy) for dx, dy in ((1, 0), (0, 1), (-1, 0), (0, -1))]
    return [(column, row) for column, row in ways if 0 <= column < columns and 0 <= row < rows]


def _choose(nodes: list[Node], rng: np.random.Generator) -> Node:
    return nodes[int(rng.integers(len(nodes)))]


def _smooth(corners: Points) -> Points:
    """Equal steps along the line, then a moving mean that rounds the turns."""
    travelled = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(corners, axis=0).T))])
    even = np.arange(0, travelled[-1], _STEP)
    window = np.ones(int(5 / _STEP)) / int(5 / _STEP)
    return np.stack(
        [np.convolve(np.interp(even, travelled, axis), window, mode="valid") for axis in corners.T], axis=1
    )
