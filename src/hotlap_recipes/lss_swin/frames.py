"""The key frames of a split: which files, which cameras, where the car is, and what stands around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotlap_recipes.lss_swin import BadInputError
from hotlap_recipes.lss_swin.geometry import Matrix, frame_of, rotation_of
from hotlap_recipes.lss_swin.tables import Row, Split, Tables

POSE_CHANNEL = "LIDAR_TOP"
"""Whose pose is the car's: the cameras of a key frame are triggered by its lidar."""


@dataclass(frozen=True)
class Frame:
    """One key frame. Cameras are in the order in which they were asked for."""

    token: str
    files: tuple[Path, ...]
    sizes: tuple[tuple[int, int], ...]
    calibrations: tuple[Row, ...]
    rig: int
    ego_pose: Row
    location: str
    vehicles: NDArray[np.float64]
    """(n, 5) in the map's frame: x, y, yaw, width, length."""


def read_frames(tables: Tables, split: Split, cameras: Sequence[str]) -> list[Frame]:
    """In the order of scenes and time. A file that is missing is found now, and not in the middle of a training."""
    views = _views_by_sample(tables)
    rigs = _rigs(tables, views, cameras)
    vehicles = _vehicles_by_sample(tables)
    frames = []
    for scene in tables.scenes_of(split):
        location = tables.value("log", tables.get("log", scene["log_token"]), "location")
        for sample in _samples_of(tables, scene):
            token = sample["token"]
            seen = [_view(tables, views, token, channel) for channel in cameras]
            pose = _view(tables, views, token, POSE_CHANNEL)["ego_pose_token"]
            calibrations = [tables.get("calibrated_sensor", row["calibrated_sensor_token"]) for row in seen]
            frames.append(
                Frame(
                    token,
                    tuple(_existing(tables, row) for row in seen),
                    tuple((row["height"], row["width"]) for row in seen),
                    tuple(calibrations),
                    rigs[token],
                    tables.get("ego_pose", pose),
                    location,
                    vehicles.get(token, np.empty((0, 5))),
                )
            )
    return frames


def camera_to_ego(calibration: Row) -> Matrix:
    return frame_of(calibration["translation"], rotation_of(calibration["rotation"]))


def yaw_of(quaternion: Sequence[float]) -> float:
    ahead = rotation_of(quaternion)[:, 0]
    return float(np.arctan2(ahead[1], ahead[0]))


Views = dict[str, dict[str, Row]]


def _views_by_sample(tables: Tables) -> Views:
    """Key frames by sample and channel."""
    channels = {row["token"]: tables.value("sensor", row, "channel") for row in tables.rows("sensor")}
    views: Views = {}
    for row in tables.rows("sample_data"):
        if tables.value("sample_data", row, "is_key_frame"):
            calibration = tables.get("calibrated_sensor", row["calibrated_sensor_token"])
            views.setdefault(row["sample_token"], {})[channels[calibration["sensor_token"]]] = row
    return views


def _view(tables: Tables, views: Views, sample: str, channel: str) -> Row:
    seen = views.get(sample, {})
    if channel not in seen:
        there = ", ".join(sorted(seen)) or "none"
        raise BadInputError(
            f"{tables.folder / 'sample_data.json'}: sample {sample} has no key frame of {channel!r}, only of {there}.",
            "choose cameras that were recorded, or restore the table.",
        )
    return seen[channel]


def _samples_of(tables: Tables, scene: Row) -> list[Row]:
    samples = [row for row in tables.rows("sample") if row["scene_token"] == scene["token"]]
    return sorted(samples, key=lambda row: int(row["timestamp"]))


def _existing(tables: Tables, row: Row) -> Path:
    path: Path = tables.root / tables.value("sample_data", row, "filename")
    if not path.is_file():
        raise BadInputError(
            f"{path} is missing, the image of sample {row['sample_token']}.",
            "copy the file again, or leave the scene out of the tables.",
        )
    return path


def _rigs(tables: Tables, views: Views, cameras: Sequence[str]) -> dict[str, int]:
    """A number for each sample. All of the tree are counted, so that a rig has one number in both splits."""
    numbers: dict[str, int] = {}
    rigs = {}
    for sample in tables.rows("sample"):
        seen = views.get(sample["token"], {})
        if all(channel in seen for channel in cameras):
            rows = [
                tables.get("calibrated_sensor", seen[each]["calibrated_sensor_token"]) for each in cameras
            ]
            values = [[row[key] for key in ("translation", "rotation", "camera_intrinsic")] for row in rows]
            sizes = [(seen[each]["height"], seen[each]["width"]) for each in cameras]
            rigs[sample["token"]] = numbers.setdefault(str((values, sizes)), len(numbers))
    return rigs


def _vehicles_by_sample(tables: Tables) -> dict[str, NDArray[np.float64]]:
    found: dict[str, list[list[float]]] = {}
    for row in tables.rows("sample_annotation"):
        instance = tables.get("instance", row["instance_token"])
        name = tables.value("category", tables.get("category", instance["category_token"]), "name")
        if name.startswith("vehicle."):
            x, y, _ = row["translation"]
            width, length, _ = row["size"]
            found.setdefault(row["sample_token"], []).append([x, y, yaw_of(row["rotation"]), width, length])
    return {token: np.array(boxes) for token, boxes in found.items()}
