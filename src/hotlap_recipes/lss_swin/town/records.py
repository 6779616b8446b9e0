"""The rows of the thirteen nuScenes tables, linked by tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hotlap_recipes.lss_swin.geometry import Matrix, about, quaternion_of
from hotlap_recipes.lss_swin.town import Array, Row
from hotlap_recipes.lss_swin.town.camera import HEIGHT, WIDTH, cameras_of
from hotlap_recipes.lss_swin.town.ground import token_of
from hotlap_recipes.lss_swin.town.lidar import TO_EGO
from hotlap_recipes.lss_swin.town.traffic import ATTRIBUTES, SIZES, Thing

LIDAR = "LIDAR_TOP"
TABLES = (
    "attribute", "calibrated_sensor", "category", "ego_pose", "instance", "log", "map", "sample",
    "sample_annotation", "sample_data", "scene", "sensor", "visibility",
)  # fmt: skip
VISIBLE_METRES = ((25.0, "4"), (40.0, "3"), (50.0, "2"))
"""Nobody counts how much of a thing is hidden: what is told for its visibility is its distance."""

Tables = dict[str, list[Row]]


def shared_rows(locations: Iterable[str], logs: Sequence[Row], channels: Sequence[str]) -> Tables:
    """What does not belong to one scene."""
    levels = ("v0-40", "v40-60", "v60-80", "v80-100")
    return {
        "attribute": [_named("attribute", name) for name in ATTRIBUTES],
        "category": [_named("category", name) for name in SIZES],
        "visibility": [
            {"token": str(at), "level": level, "description": "told by the distance"}
            for at, level in enumerate(levels, start=1)
        ],
        "sensor": [
            {"token": token_of("sensor", name), "channel": name, "modality": _modality(name)}
            for name in channels
        ],
        "map": [
            {
                "token": token_of("map", location),
                "category": "semantic_prior",
                "filename": mask_file(location),
                "log_tokens": [row["token"] for row in logs if row["location"] == location],
            }
            for location in locations
        ],
    }


def mask_file(location: str) -> str:
    return f"maps/{token_of('mask', location)}.png"


def _named(table: str, name: str) -> Row:
    return {"token": token_of(table, name), "name": name, "description": ""}


def _modality(channel: str) -> str:
    return "camera" if channel.startswith("CAM") else "lidar"


class SceneRecords:
    """Collects the rows of one scene, frame by frame."""

    def __init__(self, name: str, location: str, vehicle: str, frames: int, start: int) -> None:
        self.name = name
        self.vehicle = vehicle
        self.frames = frames
        self.start = start
        self.tables: Tables = {name: [] for name in TABLES}
        self._annotations: dict[int, list[Row]] = {}
        self._add_scene(location)
        for camera in cameras_of(vehicle):
            self._add_calibration(camera.channel, camera.to_ego, camera.intrinsics.tolist())
        self._add_calibration(LIDAR, TO_EGO, [])

    def timestamp(self, frame: int) -> int:
        """Microseconds."""
        return self.start + frame * 500_000

    def file(self, channel: str, frame: int) -> str:
        suffix = "jpg" if channel.startswith("CAM") else "pcd.bin"
        return f"samples/{channel}/{self._log}__{channel}__{self.timestamp(frame)}.{suffix}"

    def add_frame(self, frame: int, ego: Matrix) -> None:
        row = {"timestamp": self.timestamp(frame), "scene_token": self._token("scene")}
        self.tables["sample"].append(self._chained(row, frame, "sample"))
        for channel in (*(camera.channel for camera in cameras_of(self.vehicle)), LIDAR):
            self._add_data(frame, channel, ego)

    def add_thing(self, number: int, thing: Thing, frame: int, apart: float, lidar_points: int) -> None:
        yaw = about(2, float(thing.yaw[frame]))
        width, length, height = (float(each) for each in thing.size)
        row = {
            "token": self._token("annotation", number, frame),
            "sample_token": self._token("sample", frame),
            "instance_token": self._token("instance", number),
            "visibility_token": next((token for reach, token in VISIBLE_METRES if apart < reach), "1"),
            "attribute_tokens": [token_of("attribute", thing.attribute)] if thing.attribute else [],
            "translation": [*map(float, thing.position[frame]), height / 2],
            "size": [width, length, height],
            "rotation": quaternion_of(yaw),
            "num_lidar_pts": lidar_points,
            "num_radar_pts": 0,
        }
        self._annotations.setdefault(number, []).append(row)

    def finish(self, things: Sequence[Thing]) -> Tables:
        """Link what was seen of each thing, in the order of time."""
        for number, rows in self._annotations.items():
            for at, row in enumerate(rows):
                row["prev"] = rows[at - 1]["token"] if at else ""
                row["next"] = rows[at + 1]["token"] if at + 1 < len(rows) else ""
            self.tables["sample_annotation"] += rows
            self.tables["instance"].append(
                {
                    "token": self._token("instance", number),
                    "category_token": token_of("category", things[number].category),
                    "nbr_annotations": len(rows),
                    "first_annotation_token": rows[0]["token"],
                    "last_annotation_token": rows[-1]["token"],
                }
            )
        return self.tables

    @property
    def _log(self) -> str:
        return f"{self.vehicle}-2018-07-24-{self.name}"

    def _token(self, *of: object) -> str:
        return token_of(self.name, *of)

    def _add_scene(self, location: str) -> None:
        self.tables["log"].append(
            {
                "token": self._token("log"),
                "logfile": self._log,
                "vehicle": self.vehicle,
                "date_captured": "2018-07-24",
                "location": location,
            }
        )
        self.tables["scene"].append(
            {
                "token": self._token("scene"),
                "log_token": self._token("log"),
                "nbr_samples": self.frames,
                "first_sample_token": self._token("sample", 0),
                "last_sample_token": self._token("sample", self.frames - 1),
                "name": self.name,
                "description": f"rendered, {location}",
            }
        )

    def _add_calibration(self, channel: str, to_ego: Matrix, intrinsics: list[list[float]]) -> None:
        self.tables["calibrated_sensor"].append(
            {
                "token": self._token("calibration", channel),
                "sensor_token": token_of("sensor", channel),
                "translation": _plain(to_ego[:3, 3]),
                "rotation": quaternion_of(to_ego[:3, :3]),
                "camera_intrinsic": intrinsics,
            }
        )

    def _add_data(self, frame: int, channel: str, ego: Matrix) -> None:
        is_camera = channel.startswith("CAM")
        row = {
            "sample_token": self._token("sample", frame),
            "ego_pose_token": self._token("data", channel, frame),
            "calibrated_sensor_token": self._token("calibration", channel),
            "timestamp": self.timestamp(frame),
            "fileformat": "jpg" if is_camera else "pcd",
            "is_key_frame": True,
            "height": HEIGHT if is_camera else 0,
            "width": WIDTH if is_camera else 0,
            "filename": self.file(channel, frame),
        }
        self.tables["sample_data"].append(self._chained(row, frame, "data", channel))
        self.tables["ego_pose"].append(
            {
                "token": row["ego_pose_token"],
                "timestamp": self.timestamp(frame),
                "rotation": quaternion_of(ego[:3, :3]),
                "translation": _plain(ego[:3, 3]),
            }
        )

    def _chained(self, row: Row, frame: int, *of: object) -> Row:
        """The row with its token, the one before it and the one after it."""
        last = self.frames - 1
        return {
            "token": self._token(*of, frame),
            "prev": self._token(*of, frame - 1) if frame else "",
            "next": self._token(*of, frame + 1) if frame < last else "",
            **row,
        }


def _plain(vector: Array) -> list[float]:
    return [float(each) for each in vector]
