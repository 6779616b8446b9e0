"""Vehicles and drivable areas on the grid, compared with what they should cover, cell by cell."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hotlap_recipes.lss_swin import BadInputError
from hotlap_recipes.lss_swin.frames import Frame
from hotlap_recipes.lss_swin.geometry import about, quaternion_of
from hotlap_recipes.lss_swin.grid import BevGrid
from hotlap_recipes.lss_swin.target import Area, draw_target, read_drivable


@pytest.fixture
def frame_at():
    """A key frame of a car at (x, y) that looks towards yaw, with vehicles around it."""

    def make(x=0.0, y=0.0, yaw=0.0, vehicles=()):
        pose = {"translation": [x, y, 0.0], "rotation": quaternion_of(about(2, yaw))}
        boxes = np.array(vehicles, float).reshape(-1, 5)
        return Frame("a", (), (), (), 0, pose, "somewhere", boxes)

    return make


def square(left, low, right, high, *holes):
    rings = [
        np.array([[a, b], [c, b], [c, d], [a, d]], float) for a, b, c, d in ((left, low, right, high), *holes)
    ]
    return Area(tuple(rings), (left, low, right, high))


def cell_centres(grid):
    x, y = (
        start + step * (0.5 + np.arange(count))
        for (start, _, step), count in zip((grid.x, grid.y), grid.shape[:2], strict=True)
    )
    return np.meshgrid(x, y, indexing="ij")


def inside_box(grid, x, y, yaw, width, length):
    ahead, left = cell_centres(grid)
    along = (ahead - x) * np.cos(yaw) + (left - y) * np.sin(yaw)
    across = (left - y) * np.cos(yaw) - (ahead - x) * np.sin(yaw)
    return (np.abs(along) <= length / 2) & (np.abs(across) <= width / 2)


@pytest.mark.parametrize(
    "grid", [BevGrid(), BevGrid(x=(0, 40, 0.25), y=(-10, 20, 0.5)), BevGrid(x=(-30, 30, 1), y=(-30, 30, 1))]
)
def test_a_vehicle_covers_the_cells_whose_centres_lie_in_its_box(frame_at, grid):
    rng = np.random.default_rng(1)
    boxes = np.column_stack(
        [
            rng.uniform(-60, 60, (40, 2)),
            rng.uniform(-4, 4, 40),
            rng.uniform(0.8, 3, 40),
            rng.uniform(2, 12, 40),
        ]
    )
    expected = np.any([inside_box(grid, *box) for box in boxes], axis=0)
    drawn = draw_target(frame_at(vehicles=boxes), [], grid)
    assert expected.sum() > 50
    np.testing.assert_array_equal(drawn[0], expected)
    assert not drawn[1].any()


def test_a_vehicle_is_drawn_where_the_turned_car_sees_it(frame_at):
    """The car looks north; 20 m ahead and 6 m to the left is north-west of it."""
    north = np.pi / 2
    drawn = draw_target(frame_at(100, 50, north, [[94, 70, north, 2, 5]]), [], BevGrid())[0]
    np.testing.assert_array_equal(drawn, inside_box(BevGrid(), 20, 6, 0, 2, 5))


def test_a_street_is_drawn_where_the_turned_car_sees_it(frame_at):
    """A street that runs east, 8 m wide; the car stands 20 m south of it and looks north."""
    drawn = draw_target(frame_at(0, -20, np.pi / 2), [square(-500, -4, 500, 4)], BevGrid())[1]
    ahead, _ = cell_centres(BevGrid())
    clear = np.abs(np.abs(ahead - 20) - 4) > 0.5  # OpenCV also sets cells that the kerb only touches
    np.testing.assert_array_equal(drawn[clear], (np.abs(ahead - 20) < 4)[clear])


def test_a_hole_stays_empty_unless_another_area_covers_it(frame_at):
    ring = square(-30, -30, 30, 30, (-20, -20, -5, -5), (5, 5, 20, 20))
    drawn = draw_target(frame_at(), [ring, square(5, 5, 20, 20)], BevGrid())[1]
    ahead, left = cell_centres(BevGrid())
    empty_hole = (np.abs(ahead + 12.5) < 7) & (np.abs(left + 12.5) < 7)
    covered_hole = (np.abs(ahead - 12.5) < 7) & (np.abs(left - 12.5) < 7)
    assert not drawn[empty_hole].any() and drawn[covered_hole].all()
    assert drawn[100, 100] and not drawn[0, 0]


def test_an_area_out_of_reach_changes_nothing(frame_at):
    assert not draw_target(frame_at(), [square(80, 80, 90, 90)], BevGrid()).any()


def test_holes_are_read_from_a_map(tmp_path):
    corners = [(0, 0), (9, 0), (9, 9), (0, 9), (3, 3), (6, 3), (6, 6)]
    content = {
        "node": [{"token": str(at), "x": x, "y": y} for at, (x, y) in enumerate(corners)],
        "polygon": [
            {"token": "p", "exterior_node_tokens": list("0123"), "holes": [{"node_tokens": list("456")}]}
        ],
        "drivable_area": [{"token": "d", "polygon_tokens": ["p"]}],
    }
    path = tmp_path / "maps" / "expansion" / "here.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content))
    (area,) = read_drivable(tmp_path, "here")
    assert [len(ring) for ring in area.rings] == [4, 3] and area.bounds == (0, 0, 9, 9)

    content["node"].pop(5)
    path.write_text(json.dumps(content))
    with pytest.raises(BadInputError, match=r"here\.json names '5', which it does not hold"):
        read_drivable(tmp_path, "here")


def test_a_missing_map_is_named(tmp_path):
    with pytest.raises(
        BadInputError, match=r"expansion/atlantis\.json cannot be read.*\n.*map expansion v1\.3"
    ):
        read_drivable(tmp_path, "atlantis")
