"""What stands and moves in a quarter while a scene is filmed: parked and driving vehicles, people, cones, barriers."""

from __future__ import annotations

import colorsys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from hotlap_recipes.lss_swin.town import Array, Points
from hotlap_recipes.lss_swin.town.drive import KEY_FRAME_SECONDS, Drive
from hotlap_recipes.lss_swin.town.streets import CANVAS, PARKING, WALKWAY, Block, Street, Town

SIZES = {
    "vehicle.car": (1.9, 4.5, 1.6),
    "vehicle.truck": (2.4, 6.8, 2.9),
    "vehicle.bus.rigid": (2.8, 10.5, 3.3),
    "vehicle.motorcycle": (0.8, 2.1, 1.5),
    "human.pedestrian.adult": (0.7, 0.7, 1.75),
    "movable_object.trafficcone": (0.4, 0.4, 0.9),
    "movable_object.barrier": (2.2, 0.6, 1.0),
}
"""Width, length and height in metres, in the order in which nuScenes stores them."""
ATTRIBUTES = (
    "vehicle.moving", "vehicle.stopped", "vehicle.parked", "cycle.with_rider", "cycle.without_rider",
    "pedestrian.sitting_lying_down", "pedestrian.standing", "pedestrian.moving",
)  # fmt: skip
_FIXED_COLOURS = {"movable_object.trafficcone": (255, 110, 20), "movable_object.barrier": (240, 200, 40)}


@dataclass(frozen=True)
class Thing:
    """One object during a scene. Where it is not `present`, its position means nothing."""

    category: str
    attribute: str | None
    size: Array
    colour: tuple[float, float, float]
    position: Points
    yaw: Array
    present: Array


def traffic_of(town: Town, split: str, drive: Drive, rng: np.random.Generator) -> list[Thing]:
    """All that is in the quarter. Whatever would hit the car is not there."""
    columns = town.quarter(split)
    west, east = columns[0].middle - 80, columns[-1].middle + 80
    things: list[Thing] = []
    for block in town.blocks():
        middle = block.street.line(block.start, block.end)[:, 0].mean()
        if west < middle < east:
            things += _standing(block, len(drive), rng)
    for street in (*columns, *town.rows):
        for side in (-1, 1):
            things += _driving(street, side, town.keeps_left, len(drive), rng)
    return [thing for thing in things if not _hits(thing, drive)]


def _standing(block: Block, frames: int, rng: np.random.Generator) -> Iterator[Thing]:
    street = block.street
    for side in (-1, 1):
        kerb = side * (street.half_width - PARKING / 2)
        for along in np.arange(block.start + 8, block.end - 8, 6.5):
            if rng.random() < 0.4:
                kind = rng.choice(["vehicle.car", "vehicle.truck"], p=[0.85, 0.15])
                yield _still(kind, "vehicle.parked", street, along + rng.uniform(0, 1), kerb, frames, rng)
            elif rng.random() < 0.06:
                cone = "movable_object.trafficcone"
                yield _still(cone, None, street, along, side * (street.half_width - 0.4), frames, rng)
        walkway = side * (street.half_width + WALKWAY / 2)
        for along in rng.uniform(block.start, block.end, rng.poisson((block.end - block.start) / 22)):
            yield _person(
                _still("human.pedestrian.adult", "pedestrian.standing", street, along, walkway, frames, rng),
                rng,
            )
        if rng.random() < 0.25:
            along = rng.uniform(block.start, block.end)
            yield _still(
                "movable_object.barrier",
                None,
                street,
                along,
                side * (street.half_width + WALKWAY),
                frames,
                rng,
            )


def _still(
    category: str,
    attribute: str | None,
    street: Street,
    along: float,
    offset: float,
    frames: int,
    rng: np.random.Generator,
) -> Thing:
    """Looks along the street, one way or the other."""
    place, ahead = street.places(np.array(along), offset)
    yaw = ahead + rng.choice([0, np.pi]) + rng.normal(0, 0.03)
    size = np.array(SIZES[category]) * rng.uniform(0.9, 1.12, 3)
    return Thing(
        category, attribute, size, _colour(category, rng),
        np.tile(place, (frames, 1)), np.full(frames, yaw), np.ones(frames, bool),
    )  # fmt: skip


def _person(standing: Thing, rng: np.random.Generator) -> Thing:
    """Every second one strolls up and down a few steps."""
    if rng.random() < 0.5:
        return standing
    ahead = np.stack([np.cos(standing.yaw), np.sin(standing.yaw)], axis=1)
    stroll = 1.5 * np.sin(np.arange(len(standing.yaw)) * KEY_FRAME_SECONDS / 2 + rng.uniform(0, 6))
    return replace(
        standing, attribute="pedestrian.moving", position=standing.position + ahead * stroll[:, None]
    )


def _driving(
    street: Street, side: int, keeps_left: bool, frames: int, rng: np.random.Generator
) -> Iterator[Thing]:
    """Vehicles of one lane, all at one pace; who leaves the town is replaced by another who enters it."""
    length, pace = CANVAS[street.axis], rng.uniform(3, 7) * KEY_FRAME_SECONDS
    kinds = ["vehicle.car", "vehicle.bus.rigid", "vehicle.motorcycle", "vehicle.truck"]
    for start in np.arange(rng.uniform(0, 40), length - 10, 40) + rng.uniform(0, 22):
        travelled = start + pace * np.arange(frames)
        for lap in range(int(travelled[-1] // length) + 1):
            kind = rng.choice(kinds, p=[0.72, 0.08, 0.08, 0.12])
            along = travelled - lap * length
            present = (along >= 0) & (along < length)
            along = np.where(side > 0, along, length - along)
            yield _moving(kind, street, along, side, keeps_left, present, rng)


def _moving(
    kind: str,
    street: Street,
    along: Array,
    side: int,
    keeps_left: bool,
    present: Array,
    rng: np.random.Generator,
) -> Thing:
    offset = -street.lane if keeps_left else street.lane
    position, yaw = street.places(along, offset, side)
    attribute = "cycle.with_rider" if kind.endswith("cycle") else "vehicle.moving"
    size = np.array(SIZES[kind]) * rng.uniform(0.9, 1.12, 3)
    return Thing(kind, attribute, size, _colour(kind, rng), position, yaw, present)


def _colour(category: str, rng: np.random.Generator) -> tuple[float, float, float]:
    """Red, green, blue up to 255."""
    if category in _FIXED_COLOURS:
        return _FIXED_COLOURS[category]
    saturation = rng.uniform(0.0, 0.9) if category.startswith("vehicle") else 0.5
    red, green, blue = colorsys.hsv_to_rgb(rng.random(), saturation, rng.uniform(0.3, 1.0))
    return red * 255, green * 255, blue * 255


def _hits(thing: Thing, drive: Drive) -> bool:
    """Whether it ever comes into the rectangle that the car needs."""
    apart = thing.position - drive.position
    cos, sin = np.cos(drive.yaw), np.sin(drive.yaw)
    ahead, aside = apart[:, 0] * cos + apart[:, 1] * sin, apart[:, 1] * cos - apart[:, 0] * sin
    turned = np.abs(thing.yaw - drive.yaw)
    width, length = thing.size[:2] / 2
    along = np.abs(np.cos(turned)) * length + np.abs(np.sin(turned)) * width
    across = np.abs(np.sin(turned)) * length + np.abs(np.cos(turned)) * width
    hit = (np.abs(ahead - 1.0) < 4.0 + along) & (np.abs(aside) < 1.3 + across) & thing.present
    return bool(hit.any())
