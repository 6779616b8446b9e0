"""What a lidar on the roof would return: rings on the ground, and points on the sides of things."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hotlap_recipes.lss_swin.geometry import Matrix, about, frame_of, inverse
from hotlap_recipes.lss_swin.town import Array
from hotlap_recipes.lss_swin.town.traffic import Thing

TO_EGO = frame_of([0.94, 0.0, 1.84], about(2, np.radians(-90)))
_RINGS, _AROUND = 22, 540
_LOWEST = np.radians(-30.0)


def scan(
    things: Sequence[Thing], frame: int, ego: Matrix, rng: np.random.Generator
) -> tuple[Array, list[int]]:
    """(n, 5) float32 in the lidar's frame: x, y, z, intensity, ring; and how many points each thing got."""
    hits = [_on_thing(thing, frame, ego, rng) for thing in things]
    town = np.concatenate([_on_ground(ego, rng), *hits])
    to_lidar = inverse(ego @ TO_EGO)
    points = town @ to_lidar[:3, :3].T + to_lidar[:3, 3]
    elevation = np.arctan2(points[:, 2], np.hypot(points[:, 0], points[:, 1]))
    ring = np.clip((elevation - _LOWEST) / -_LOWEST * _RINGS, 0, 31).astype(int)
    intensity = rng.uniform(5, 60, len(points))
    return np.column_stack([points, intensity, ring]).astype(np.float32), [len(each) for each in hits]


def _on_ground(ego: Matrix, rng: np.random.Generator) -> Array:
    elevation = np.linspace(_LOWEST, np.radians(-1.8), _RINGS)
    away = np.repeat(TO_EGO[2, 3] / np.tan(-elevation), _AROUND) * rng.normal(1, 0.004, _RINGS * _AROUND)
    angle = np.tile(np.linspace(0, 2 * np.pi, _AROUND, endpoint=False), _RINGS)
    x, y = ego[0, 3] + away * np.cos(angle), ego[1, 3] + away * np.sin(angle)
    return np.stack([x, y, rng.normal(0, 0.02, len(x))], axis=1)


def _on_thing(thing: Thing, frame: int, ego: Matrix, rng: np.random.Generator) -> Array:
    """Points on the four sides, fewer the farther it is; at least one."""
    width, length, height = thing.size
    apart = np.hypot(*(thing.position[frame] - ego[:2, 3]))
    count = 1 + int(min(800, 2500 * height * max(width, length) / (1 + apart * apart)))
    side = rng.integers(0, 4, count)
    at = rng.uniform(-0.5, 0.5, count)
    ahead = np.choose(side, [at, at, np.full(count, 0.5), np.full(count, -0.5)]) * length
    aside = np.choose(side, [np.full(count, 0.5), np.full(count, -0.5), at, at]) * width
    cos, sin = np.cos(thing.yaw[frame]), np.sin(thing.yaw[frame])
    x = thing.position[frame, 0] + ahead * cos - aside * sin
    y = thing.position[frame, 1] + ahead * sin + aside * cos
    return np.stack([x, y, rng.uniform(0, height, count)], axis=1)
