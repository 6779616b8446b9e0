"""Both splats put the same features into the same cells, and give the same gradients back."""

from __future__ import annotations

import math

import pytest
import torch

from hotlap_recipes.lss_swin import splat as splats
from hotlap_recipes.lss_swin.dataset import NuScenesBev
from hotlap_recipes.lss_swin.grid import BevGrid
from hotlap_recipes.lss_swin.splat import OUTSIDE, BagSplat, CumsumSplat, Frustum, Geometry, bags_of, cells_of

GRID = BevGrid(x=(-50.0, 50.0, 1.0), y=(-40.0, 40.0, 1.0))
FRUSTUM = Frustum((64, 176), 16, (4.0, 45.0, 1.0))


def looking(degrees):
    """A camera 1.5 m above the car's origin, turned to the left by some degrees."""
    angle = math.radians(degrees)
    ahead = torch.tensor([math.cos(angle), math.sin(angle), 0.0])
    down = torch.tensor([0.0, 0.0, -1.0])
    mounted = torch.eye(4)
    mounted[:3, :3] = torch.stack((torch.linalg.cross(down, ahead), down, ahead), dim=1)
    mounted[2, 3] = 1.5
    return torch.tensor([[140.0, 0.0, 87.5], [0.0, 140.0, 31.5], [0.0, 0.0, 1.0]]), mounted


def rig_of(*angles):
    cameras = [looking(each) for each in angles]
    return torch.stack([each[0] for each in cameras]), torch.stack([each[1] for each in cameras])


def drawn(splat, features, depth, at):
    """The map, and the gradients of features and depth under a loss that tells every cell apart."""
    features, depth = features.clone().requires_grad_(), depth.clone().requires_grad_()
    canvas = splat(features, depth, at)
    weights = torch.linspace(-1, 1, canvas.numel()).view_as(canvas)
    (canvas * weights).sum().backward()
    return canvas.detach(), features.grad, depth.grad


@pytest.mark.parametrize(
    "angles", [[(0,), (0,)], [(0, 55, -55, 180, 110, -110), (5, 60, -50, 185, 115, -105)]]
)
def test_output_and_gradient_agree(angles):
    torch.manual_seed(0)
    rigs = [rig_of(*each) for each in angles]
    at = Geometry(*(torch.stack(parts) for parts in zip(*rigs, strict=True)), [7, 8])
    shape = FRUSTUM.shape
    features = torch.randn(2, len(angles[0]), 16, *shape[1:])
    depth = torch.randn(2, len(angles[0]), *shape).softmax(2)
    fast = drawn(BagSplat(FRUSTUM, GRID), features, depth, at)
    naive = drawn(CumsumSplat(FRUSTUM, GRID), features, depth, at)
    for one, other in zip(fast, naive, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert fast[0].shape == (2, 16, 100, 80)
    assert (fast[0][0] != fast[0][1]).any(), "each sample is drawn with its own rig"
    assert all(each.abs().sum() > 0 for each in fast)


def test_on_frames_of_the_tree(tree):
    data = NuScenesBev(str(tree), "train", image_size=(64, 176), grid=GRID, decode="scaled")
    items = [data[0], data[-1 + len(data)]]
    assert items[0]["rig"] != items[1]["rig"], "two cars"
    at = Geometry(
        torch.stack([item["intrinsics"] for item in items]),
        torch.stack([item["camera_to_ego"] for item in items]),
        [item["rig"] for item in items],
    )
    torch.manual_seed(0)
    features, depth = torch.randn(2, 6, 8, 4, 11), torch.randn(2, 6, 41, 4, 11).softmax(2)
    fast, naive = (drawn(kind(FRUSTUM, GRID), features, depth, at) for kind in (BagSplat, CumsumSplat))
    for one, other in zip(fast, naive, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_a_point_lies_where_its_ray_is_at_its_depth():
    frustum = Frustum((64, 176), 16, (4.0, 45.0, 1.0))
    cells = cells_of(frustum.points(), *looking(0), GRID)
    for bin_, row, column in ((0, 1, 5), (20, 2, 3), (35, 2, 10)):
        depth = 4.0 + bin_
        u, v = column * 16 + 7.5, row * 16 + 7.5
        ahead, left, up = depth, -(u - 87.5) / 140 * depth, 1.5 - (v - 31.5) / 140 * depth
        inside = -40 <= left < 40 and -10 <= up < 10
        expected = math.floor(ahead + 50) * 80 + math.floor(left + 40) if inside else OUTSIDE
        assert cells[bin_, row, column] == expected


def test_what_is_too_high_or_too_far_is_in_no_bag():
    low = BevGrid(x=(0.0, 10.0, 1.0), y=(-5.0, 5.0, 1.0), z=(-0.5, 2.0, 2.5))
    cells = cells_of(FRUSTUM.points(), *looking(0), low).unsqueeze(0)
    bags = bags_of(cells, 100)
    assert 0 < len(bags.weights) < cells.numel() / 4
    assert len(bags.weights) == (cells != OUTSIDE).sum()
    in_order = cells.flatten()[bags.weights]
    assert in_order.diff().min() >= 0 and bags.starts[0] == 0
    area = FRUSTUM.shape[1] * FRUSTUM.shape[2]
    assert torch.equal(bags.pixels, bags.weights % area), (
        "one camera: the pixel is the place within its depth"
    )


def test_bags_are_made_once_for_each_rig_and_old_ones_leave(monkeypatch):
    made = []
    monkeypatch.setattr(splats, "bags_of", lambda *words: made.append(1) or bags_of(*words))
    monkeypatch.setattr(splats, "MOST_RIGS", 2)
    splat = BagSplat(FRUSTUM, GRID)
    mounted = rig_of(0)
    features, depth = torch.randn(2, 1, 4, 4, 11), torch.rand(2, 1, 41, 4, 11)

    def draw(*rigs):
        splat(features, depth, Geometry(*(each.expand(2, *each.shape) for each in mounted), rigs))
        return len(made)

    assert draw(1, 1) == 1
    assert draw(1, 2) == 2
    assert draw(2, 1) == 2
    assert draw(3, 3) == 3, "the third"
    assert draw(1, 1) == 4, "the first had left"
