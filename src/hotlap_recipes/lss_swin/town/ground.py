"""The ground as a picture from above, and as the map files of nuScenes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import cv2
import numpy as np

from hotlap_recipes.lss_swin.town import Array, Points, Row
from hotlap_recipes.lss_swin.town.streets import CANVAS, Layers, Town, layers_of

PIXELS_PER_METRE = 10
"""The resolution of the masks of nuScenes."""
COLOURS = {
    "grass": (62, 118, 74),
    "drivable_area": (92, 88, 86),
    "walkway": (168, 176, 182),
    "carpark_area": (118, 92, 128),
    "marking": (232, 238, 238),
}
"""Blue, green, red, as OpenCV has them."""


@cache
def paint_ground(town: Town) -> Array:
    """(height, width, 3): row 0 is y = 0, and neither lens nor light has touched it."""
    layers = layers_of(town)
    ground = np.empty((*_pixels_of_canvas(), 3), np.uint8)
    ground[:] = COLOURS["grass"]
    for name in ("carpark_area", "walkway", "drivable_area"):
        for polygon in layers[name]:
            _fill(ground, polygon, COLOURS[name])
    for line in layers["lane_divider"]:
        for start in range(0, len(line) - 2, 3):
            cv2.polylines(ground, [_pixels(line[start : start + 2])], False, COLOURS["marking"], 2)
    for polygon in layers["ped_crossing"]:
        _paint_zebra(ground, polygon)
    return _rough(ground)


def _rough(ground: Array, grain: int = 9) -> Array:
    """Grain, as asphalt and grass have it; one patch of it is laid side by side."""
    patch = np.random.default_rng(0).integers(0, 2 * grain + 1, (512, 512, 1), dtype=np.uint8)
    repeats = [-(-side // 512) for side in ground.shape[:2]]
    grains = np.tile(patch, (*repeats, 3))[: ground.shape[0], : ground.shape[1]]
    rough: Array = cv2.add(ground, grains) - np.uint8(grain)  # no colour is darker than the grain
    return rough


def _paint_zebra(ground: Array, polygon: Points) -> None:
    """Stripes along the street, from one kerb to the other: corners 0 and 1 lie on one, 2 and 3 on the other."""
    near, near_end, far_end, far = (
        polygon[0],
        polygon[len(polygon) // 2 - 1],
        polygon[len(polygon) // 2],
        polygon[-1],
    )
    stripes = int(np.hypot(*(far - near)))
    for stripe in range(stripes):
        one, other = stripe / stripes, (stripe + 0.5) / stripes
        corners = [(1 - at) * a + at * b for at, a, b in (
            (one, near, far), (one, near_end, far_end), (other, near_end, far_end), (other, near, far)
        )]  # fmt: skip
        _fill(ground, np.array(corners), COLOURS["marking"])


def prior_mask(town: Town) -> Array:
    """Where one may drive or walk, as nuScenes has it: the first row is the north."""
    mask = np.zeros(_pixels_of_canvas(), np.uint8)
    for name in ("drivable_area", "walkway"):
        for polygon in layers_of(town)[name]:
            _fill(mask, polygon, (255,))
    return mask[::-1]


def vector_map(town: Town) -> dict[str, Any]:
    """What maps/expansion/<location>.json holds, version 1.3. Layers that these towns lack are there and empty."""
    layers = layers_of(town)
    content = _Content(town.location)
    return {
        "version": "1.3",
        "canvas_edge": list(CANVAS),
        "drivable_area": content.multi_polygon("drivable_area", layers),
        "road_segment": content.polygons("drivable_area", layers, "road_segment", is_intersection=False),
        "walkway": content.polygons("walkway", layers),
        "ped_crossing": content.polygons("ped_crossing", layers, road_segment_token=""),
        "carpark_area": content.polygons("carpark_area", layers, orientation=0.0, road_block_token=""),
        "lane_divider": content.lines("lane_divider", layers, lane_divider_segments=[]),
        **{name: [] for name in ("road_block", "lane", "stop_line", "road_divider", "traffic_light", "lane_connector")},
        "arcline_path_3": {},
        "connectivity": {},
        "polygon": content.polygon,
        "line": content.line,
        "node": content.node,
    }  # fmt: skip


class _Content:
    """The polygons, lines and nodes of a map, which its layers name by token."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.polygon: list[Row] = []
        self.line: list[Row] = []
        self.node: list[Row] = []

    def multi_polygon(self, name: str, layers: Layers) -> list[Row]:
        return [
            {"token": self._token(name, 0), "polygon_tokens": [self._polygon(each) for each in layers[name]]}
        ]

    def polygons(self, name: str, layers: Layers, called: str = "", **values: Any) -> list[Row]:
        return [
            {"token": self._token(called or name, at), "polygon_token": self._polygon(each), **values}
            for at, each in enumerate(layers[name])
        ]

    def lines(self, name: str, layers: Layers, **values: Any) -> list[Row]:
        rows = []
        for at, points in enumerate(layers[name]):
            self.line.append(
                {"token": self._token("line", len(self.line)), "node_tokens": self._nodes(points)}
            )
            rows.append({"token": self._token(name, at), "line_token": self.line[-1]["token"], **values})
        return rows

    def _polygon(self, points: Points) -> str:
        token = self._token("polygon", len(self.polygon))
        self.polygon.append({"token": token, "exterior_node_tokens": self._nodes(points), "holes": []})
        return token

    def _nodes(self, points: Points) -> list[str]:
        first = len(self.node)
        self.node += [
            {"token": self._token("node", first + at), "x": float(x), "y": float(y)}
            for at, (x, y) in enumerate(points)
        ]
        return [row["token"] for row in self.node[first:]]

    def _token(self, *of: object) -> str:
        return token_of(self.location, *of)


def token_of(*of: object) -> str:
    """32 hexadecimal digits, the same for the same thing in every run."""
    return hashlib.md5("/".join(map(str, of)).encode(), usedforsecurity=False).hexdigest()


def _pixels_of_canvas() -> tuple[int, int]:
    return round(CANVAS[1] * PIXELS_PER_METRE), round(CANVAS[0] * PIXELS_PER_METRE)


def _pixels(points: Points) -> Array:
    """Pixel i covers the metres from i / 10 to (i + 1) / 10."""
    return np.round(points * PIXELS_PER_METRE - 0.5).astype(np.int32)


def _fill(image: Array, polygon: Points, colour: Sequence[int]) -> None:
    cv2.fillPoly(image, [_pixels(polygon)], tuple(colour))
