"""Driving data laid out as nuScenes: JSON tables in v1.0-*/, and a key frame of all sensors as one sample."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from hotlap.data.pack.source import Arguments, FileSource, files_fingerprint, no_arguments, read_intact
from hotlap.data.samples import Fields, SampleError

Row = dict[str, Any]
_TABLES = ("sample", "sample_data", "calibrated_sensor", "sensor", "ego_pose", "scene")


class NuScenes(FileSource):
    """Every camera as `CAM_FRONT.jpg`, every point cloud as `LIDAR_TOP.bin`; poses, calibration and boxes beside."""

    @classmethod
    def recognises(cls, name: str) -> bool:
        return Path(name).is_dir() and bool(_versions(Path(name)))

    def __init__(self, name: str, arguments: Arguments) -> None:
        no_arguments(name, arguments)
        versions = _versions(Path(name))
        if len(versions) > 1:
            names = ", ".join(each.name for each in versions)
            raise SampleError(f"{name} holds several versions: {names}.", "pack a folder with one of them")
        self._folder = versions[0]
        self._root = self._folder.parent
        tables = {table: _table(self._folder, table) for table in _TABLES}
        self._by_token = {table: {row["token"]: row for row in rows} for table, rows in tables.items()}
        self._samples = sorted(tables["sample"], key=lambda row: (row["scene_token"], row["timestamp"]))
        self._frames = _grouped([row for row in tables["sample_data"] if row["is_key_frame"]])
        self._boxes = _grouped(_table(self._folder, "sample_annotation", optional=True))

    @cached_property
    def keys(self) -> Sequence[str]:
        return [row["token"] for row in self._samples]

    def read(self, index: int) -> Fields:
        sample = self._samples[index]
        scene = self._by_token["scene"].get(sample["scene_token"], {}).get("name", sample["scene_token"])
        fields: Fields = {"scene": scene, "timestamp": sample["timestamp"], "sensors": {}}
        for row in self._frames.get(sample["token"], []):
            calibration = self._by_token["calibrated_sensor"][row["calibrated_sensor_token"]]
            channel = self._by_token["sensor"][calibration["sensor_token"]]["channel"]
            suffix = row["filename"].rpartition(".")[2].lower()
            fields[f"{channel}.{suffix}"] = read_intact(self._root / row["filename"])
            pose = self._by_token["ego_pose"][row["ego_pose_token"]]
            fields["sensors"][channel] = {
                "calibration": calibration,
                "ego_pose": pose,
                "file": row["filename"],
            }
        return {**fields, "boxes": self._boxes.get(sample["token"], [])}

    def where(self, index: int) -> str:
        return f"key frame {self._samples[index]['token']}"

    def paths(self, index: int) -> Sequence[Path]:
        rows = self._frames.get(self._samples[index]["token"], [])
        return [self._root / row["filename"] for row in rows]

    def fingerprint(self) -> str:
        frames = (self._root / row["filename"] for rows in self._frames.values() for row in rows)
        return files_fingerprint([*sorted(self._folder.glob("*.json")), *sorted(frames)])


def _versions(root: Path) -> list[Path]:
    return sorted(path.parent for path in root.glob("v1.0*/sample_data.json"))


def _table(folder: Path, name: str, optional: bool = False) -> list[Row]:
    path = folder / f"{name}.json"
    if optional and not path.exists():
        return []
    try:
        rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SampleError(f"{path} cannot be read: {error}.", "restore the table") from None
    return rows


def _grouped(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row["sample_token"], []).append(row)
    return grouped
