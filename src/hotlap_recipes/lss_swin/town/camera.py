"""The cameras of the two cars, and the pictures they take.

The ground is exact: a plane is seen through a homography. Things are boxes, the farthest painted first.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cache, cached_property

import cv2
import numpy as np

from hotlap_recipes.lss_swin.geometry import CAMERA_AXES, Matrix, about, frame_of, inverse
from hotlap_recipes.lss_swin.town import Array
from hotlap_recipes.lss_swin.town.boxes import FACES, Boxes
from hotlap_recipes.lss_swin.town.ground import COLOURS, PIXELS_PER_METRE

HEIGHT, WIDTH = 900, 1600
_RIG = {  # translation, yaw in degrees and focal length: the car of nuScenes, rounded
    "CAM_FRONT": ((1.70, 0.02, 1.51), 0, 1266.0),
    "CAM_FRONT_RIGHT": ((1.55, -0.49, 1.50), -56, 1261.0),
    "CAM_FRONT_LEFT": ((1.52, 0.49, 1.51), 56, 1273.0),
    "CAM_BACK": ((0.03, 0.00, 1.58), 180, 809.0),
    "CAM_BACK_LEFT": ((1.04, 0.48, 1.59), 108, 1257.0),
    "CAM_BACK_RIGHT": ((1.02, -0.48, 1.56), -110, 1260.0),
}
_HAZE = np.array([212.0, 204.0, 196.0])
_COARSE = 4
"""Far ground is sampled from a picture that is smaller by this factor: the fine one would flicker there."""
_FAR = 22.0
_NEAR = 0.3
_SUBPIXEL = 4


@dataclass(frozen=True)
class Camera:
    channel: str
    intrinsics: Matrix
    to_ego: Matrix

    @cached_property
    def sky(self) -> tuple[Array, Array]:
        """The rows down to the horizon, and which of their pixels are sky. The car never tilts: always the same."""
        ray_up = (self.to_ego[:3, :3] @ np.linalg.inv(self.intrinsics))[2]
        rise = ray_up[0] * np.arange(WIDTH) + ray_up[1] * np.arange(HEIGHT)[:, None] + ray_up[2]
        above = rise > -4e-3
        rows = int(above.any(axis=1).sum())
        blend = np.clip(rise[:rows, :, None] / 0.35, 0, 1)
        colours = (1 - blend) * np.array([215.0, 208, 200]) + blend * np.array([205.0, 150, 95])
        return colours.astype(np.uint8), above[:rows].astype(np.uint8)


@cache
def cameras_of(vehicle: str) -> tuple[Camera, ...]:
    """The rig of a car. No two cars have theirs mounted quite alike."""
    rng = np.random.default_rng(zlib.crc32(vehicle.encode()))
    return tuple(_mounted(channel, rng) for channel in _RIG)


def _mounted(channel: str, rng: np.random.Generator) -> Camera:
    translation, yaw, focal = _RIG[channel]
    yaw_off, pitch, roll = np.radians(rng.normal(0, [0.8, 0.3, 0.3]))
    rotation = about(2, np.radians(yaw) + yaw_off) @ about(1, pitch) @ about(0, roll) @ CAMERA_AXES
    focal *= rng.uniform(0.995, 1.005)
    middle = np.array([816.0, 491.0]) + rng.normal(0, 6, 2)
    intrinsics = np.array([[focal, 0.0, middle[0]], [0.0, focal, middle[1]], [0.0, 0.0, 1.0]])
    return Camera(channel, intrinsics, frame_of(np.array(translation) + rng.normal(0, 0.01, 3), rotation))


@dataclass(frozen=True)
class Scenery:
    """The ground of a town in the light of a day: `light` is blue, green and red gain."""

    fine: Array
    light: tuple[float, float, float]

    @cached_property
    def coarse(self) -> Array:
        height, width = self.fine.shape[:2]
        return cv2.resize(self.fine, (width // _COARSE, height // _COARSE), interpolation=cv2.INTER_AREA)


def take_picture(camera: Camera, ego: Matrix, scenery: Scenery, boxes: Boxes) -> Array:
    """(900, 1600, 3), blue, green, red."""
    eye = ego @ camera.to_ego
    image = _ground(camera, eye, scenery)
    colours, above = camera.sky
    cv2.copyTo(colours, above, image[: len(above)])
    _paint_boxes(image, camera, eye, boxes)
    return _lit(image, scenery.light)


def _lit(image: Array, light: tuple[float, float, float]) -> Array:
    levels = np.arange(256)[:, None] * np.array(light)
    table = np.clip(levels, 0, 255).astype(np.uint8)[None]
    lit: Array = cv2.LUT(image, table)
    return lit


def _ground(camera: Camera, eye: Matrix, scenery: Scenery) -> Array:
    rays = eye[:3, :3] @ np.linalg.inv(camera.intrinsics)
    x, y, z = eye[:3, 3]
    to_metres = np.array([x * rays[2] - z * rays[0], y * rays[2] - z * rays[1], rays[2]])
    far_row = int(camera.intrinsics[1, 2] + camera.intrinsics[1, 1] * z / _FAR)
    image = np.empty((HEIGHT, WIDTH, 3), np.uint8)
    skyline = int(camera.sky[1].all(axis=1).sum())
    for picture, scale, top, bottom in (
        (scenery.coarse, PIXELS_PER_METRE / _COARSE, skyline, far_row),
        (scenery.fine, PIXELS_PER_METRE, far_row, HEIGHT),
    ):
        to_picture = np.array([[scale, 0, -0.5], [0, scale, -0.5], [0, 0, 1]]) @ to_metres
        from_row = to_picture @ np.array([[1, 0, 0], [0, 1, top], [0, 0, 1]])
        image[top:bottom] = cv2.warpPerspective(
            picture, from_row, (WIDTH, bottom - top),
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, borderValue=COLOURS["grass"],
        )  # fmt: skip
    return image


def _paint_boxes(image: Array, camera: Camera, eye: Matrix, boxes: Boxes) -> None:
    to_camera = inverse(eye)
    seen = boxes.corners @ to_camera[:3, :3].T + to_camera[:3, 3]
    depth = seen[..., 2].max(axis=1)
    reach = np.abs(seen[..., 0]).min(axis=1)
    room = 0.75 * WIDTH / camera.intrinsics[0, 0]
    distance = np.hypot(*(boxes.middle - eye[:2, 3]).T)
    shown = np.flatnonzero((depth > 0.5) & (reach < depth * room + 8) & (distance < 80))
    facing = boxes.facing(eye[:3, 3])
    haze = np.minimum(distance / 150, 0.5)[:, None, None]
    colours = (1 - haze) * boxes.colours + haze * _HAZE
    for box in shown[np.argsort(-distance[shown], kind="stable")]:
        for face in np.flatnonzero(facing[box]):
            _paint_face(image, camera.intrinsics, seen[box, FACES[face]], colours[box, face])


def _paint_face(image: Array, intrinsics: Matrix, corners: Array, colour: Array) -> None:
    corners = corners if corners[:, 2].min() >= _NEAR else _clipped(corners)
    if len(corners) < 3:
        return
    projected = corners @ intrinsics.T
    pixels = np.clip(projected[:, :2] / projected[:, 2:], -8000, 8000)
    fixed_point = np.round(pixels * 2**_SUBPIXEL).astype(np.int32)
    cv2.fillConvexPoly(image, fixed_point, colour.tolist(), cv2.LINE_AA, _SUBPIXEL)


def _clipped(corners: Array) -> Array:
    """What of a polygon lies in front of the lens."""
    kept = []
    for here, there in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        if here[2] >= _NEAR:
            kept.append(here)
        if (here[2] >= _NEAR) != (there[2] >= _NEAR):
            share = (_NEAR - here[2]) / (there[2] - here[2])
            kept.append(here + share * (there - here))
    return np.array(kept)
