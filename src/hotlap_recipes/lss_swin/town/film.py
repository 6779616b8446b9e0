"""Film a scene: drive through a quarter and write what the sensors see at every key frame."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from hotlap_recipes.lss_swin.geometry import Matrix, about, frame_of
from hotlap_recipes.lss_swin.splits import MINI
from hotlap_recipes.lss_swin.town.boxes import boxes_at
from hotlap_recipes.lss_swin.town.camera import Scenery, cameras_of, take_picture
from hotlap_recipes.lss_swin.town.drive import Drive, drive_through
from hotlap_recipes.lss_swin.town.ground import paint_ground
from hotlap_recipes.lss_swin.town.lidar import scan
from hotlap_recipes.lss_swin.town.records import LIDAR, SceneRecords, Tables
from hotlap_recipes.lss_swin.town.streets import town_of
from hotlap_recipes.lss_swin.town.traffic import Thing, traffic_of

WHERE = {
    "scene-0061": "singapore-onenorth",
    "scene-0103": "boston-seaport",
    "scene-0553": "boston-seaport",
    "scene-0655": "boston-seaport",
    "scene-0757": "boston-seaport",
    "scene-0796": "singapore-queenstown",
    "scene-0916": "singapore-queenstown",
    "scene-1077": "singapore-hollandvillage",
    "scene-1094": "singapore-hollandvillage",
    "scene-1100": "singapore-hollandvillage",
}
"""As in the real v1.0-mini."""
ANNOTATED_METRES = 72.0
"""The corners of a grid that reaches 50 m each way are 71 m off."""
SEEN_METRES = 85.0
_FIRST = 1_532_402_927_000_000


@dataclass(frozen=True)
class Shot:
    """What to film. The same shot gives the same files, whichever others are filmed."""

    name: str
    frames: int
    seed: int = 0
    quality: int = 92

    @property
    def split(self) -> str:
        return "train" if self.name in MINI["train"] else "val"

    @property
    def location(self) -> str:
        return WHERE[self.name]

    @property
    def vehicle(self) -> str:
        return "n008" if self.location.startswith("boston") else "n015"


def film(shot: Shot, root: Path) -> Tables:
    """Write the files of a scene and return its rows."""
    rng = np.random.default_rng([shot.seed, zlib.crc32(shot.name.encode())])
    town = town_of(shot.location)
    drive = drive_through(town, shot.split, shot.frames, rng)
    things = traffic_of(town, shot.split, drive, rng)
    brightness = rng.uniform(0.85, 1.12)
    blue, green, red = brightness * rng.uniform(0.95, 1.05, 3)
    scenery = Scenery(paint_ground(town), (float(blue), float(green), float(red)))
    start = _FIRST + list(WHERE).index(shot.name) * 1_000_000_000
    records = SceneRecords(shot.name, shot.location, shot.vehicle, shot.frames, start)
    for frame in range(shot.frames):
        ego = frame_of([*drive.position[frame], 0.0], about(2, float(drive.yaw[frame])))
        records.add_frame(frame, ego)
        _take_pictures(shot, root, records, frame, ego, scenery, _near(things, drive, frame, SEEN_METRES))
        _annotate(root, records, things, drive, frame, ego, rng)
    return records.finish(things)


def _take_pictures(
    shot: Shot,
    root: Path,
    records: SceneRecords,
    frame: int,
    ego: Matrix,
    scenery: Scenery,
    near: dict[int, Thing],
) -> None:
    boxes = boxes_at(list(near.values()), frame)
    for camera in cameras_of(shot.vehicle):
        picture = take_picture(camera, ego, scenery, boxes)
        _, content = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, shot.quality])
        (root / records.file(camera.channel, frame)).write_bytes(content.tobytes())


def _annotate(
    root: Path,
    records: SceneRecords,
    things: list[Thing],
    drive: Drive,
    frame: int,
    ego: Matrix,
    rng: np.random.Generator,
) -> None:
    near = _near(things, drive, frame, ANNOTATED_METRES)
    points, hits = scan(list(near.values()), frame, ego, rng)
    (root / records.file(LIDAR, frame)).write_bytes(points.tobytes())
    for (number, thing), count in zip(near.items(), hits, strict=True):
        apart = float(np.hypot(*(thing.position[frame] - drive.position[frame])))
        records.add_thing(number, thing, frame, apart, count)


def _near(things: list[Thing], drive: Drive, frame: int, metres: float) -> dict[int, Thing]:
    """The things that are there and not too far off, by number."""
    return {
        number: thing
        for number, thing in enumerate(things)
        if thing.present[frame] and np.hypot(*(thing.position[frame] - drive.position[frame])) < metres
    }
