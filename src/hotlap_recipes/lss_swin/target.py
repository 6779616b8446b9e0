"""What the network is to draw: the cells that vehicles cover, and the cells on which one may drive."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from hotlap_recipes.lss_swin import BadInputError
from hotlap_recipes.lss_swin.frames import Frame, yaw_of
from hotlap_recipes.lss_swin.grid import BevGrid

Points = NDArray[np.float64]
Mask = NDArray[np.uint8]
_SUBPIXEL = 4


@dataclass(frozen=True)
class Area:
    """A polygon of the map, with its holes, and the box around it: least x and y, greatest x and y."""

    rings: tuple[Points, ...]
    bounds: tuple[float, float, float, float]


def draw_target(frame: Frame, drivable: Sequence[Area], grid: BevGrid) -> Mask:
    """(2, X, Y), 0 or 1."""
    target = np.zeros((2, *grid.shape[:2]), np.uint8)
    here = np.array(frame.ego_pose["translation"][:2])
    yaw = yaw_of(frame.ego_pose["rotation"])
    _draw_vehicles(target[0], frame.vehicles, here, yaw, grid)
    _draw_areas(target[1], drivable, here, yaw, grid)
    return target


def _draw_vehicles(mask: Mask, vehicles: Points, here: Points, yaw: float, grid: BevGrid) -> None:
    """Set every cell whose centre lies in a box. OpenCV would also set those that a box only touches, a third more."""
    if not len(vehicles):
        return
    step = np.array([grid.x[2], grid.y[2]])
    middle = (_turned(vehicles[:, :2] - here, -yaw) - [grid.x[0], grid.y[0]]) / step - 0.5
    reach = int(np.ceil(np.hypot(vehicles[:, 3], vehicles[:, 4]).max() / 2 / step.min())) + 1
    around = np.indices((2 * reach + 1, 2 * reach + 1)).reshape(2, -1).T - reach
    cells = np.round(middle).astype(np.int64)[:, None] + around
    apart = (cells - middle[:, None]) * step
    turn = vehicles[:, 2] - yaw
    cos, sin = np.cos(turn)[:, None], np.sin(turn)[:, None]
    ahead = np.abs(apart[..., 0] * cos + apart[..., 1] * sin) <= vehicles[:, 4:5] / 2
    aside = np.abs(apart[..., 1] * cos - apart[..., 0] * sin) <= vehicles[:, 3:4] / 2
    inside = ((cells >= 0) & (cells < mask.shape)).all(axis=-1)
    covered = cells[ahead & aside & inside]
    mask[covered[:, 0], covered[:, 1]] = 1


def _draw_areas(mask: Mask, areas: Sequence[Area], here: Points, yaw: float, grid: BevGrid) -> None:
    reach = np.hypot(max(map(abs, grid.x[:2])), max(map(abs, grid.y[:2])))
    (west, south), (east, north) = here - reach, here + reach
    for area in areas:
        left, low, right, high = area.bounds
        if left < east and right > west and low < north and high > south:
            rings = [_cells(_turned(ring - here, -yaw), grid) for ring in area.rings]
            if len(rings) == 1:
                cv2.fillPoly(mask, rings, 1, cv2.LINE_8, _SUBPIXEL)
            else:  # on a sheet of its own: the holes of one area may lie in another
                sheet = np.zeros_like(mask)
                cv2.fillPoly(sheet, rings, 1, cv2.LINE_8, _SUBPIXEL)
                mask |= sheet


def _cells(points: Points, grid: BevGrid) -> NDArray[np.int32]:
    """For OpenCV: column before row, in fractions of a cell, counted from the centre of the first."""
    x, y = points.T
    fraction = np.stack([(y - grid.y[0]) / grid.y[2], (x - grid.x[0]) / grid.x[2]], axis=1) - 0.5
    rounded: NDArray[np.int32] = np.round(fraction * 2**_SUBPIXEL).astype(np.int32)
    return rounded


def _turned(points: Points, angle: float) -> Points:
    cos, sin = np.cos(angle), np.sin(angle)
    turned: Points = points @ np.array([[cos, sin], [-sin, cos]])
    return turned


def read_drivable(root: Path, location: str) -> list[Area]:
    """The drivable area of a vector map (the map expansion of nuScenes, version 1.3)."""
    path = root / "maps" / "expansion" / f"{location}.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        remedy = "unpack the map expansion v1.3 into maps/expansion."
        raise BadInputError(f"the map {path} cannot be read: {error}.", remedy) from None
    try:
        return _areas(content)
    except KeyError as missing:
        what = f"the map {path} names {missing}, which it does not hold."
        raise BadInputError(what, "unpack the map expansion v1.3 again.") from None


def _areas(content: dict[str, Any]) -> list[Area]:
    nodes = {row["token"]: (row["x"], row["y"]) for row in content["node"]}
    polygons = {row["token"]: row for row in content["polygon"]}
    areas = []
    for token in (token for row in content["drivable_area"] for token in row["polygon_tokens"]):
        polygon = polygons[token]
        outlines = [polygon["exterior_node_tokens"], *(hole["node_tokens"] for hole in polygon["holes"])]
        rings = tuple(np.array([nodes[node] for node in outline], np.float64) for outline in outlines)
        (left, low), (right, high) = rings[0].min(axis=0), rings[0].max(axis=0)
        areas.append(Area(rings, (float(left), float(low), float(right), float(high))))
    return areas
