"""From pixels with a distribution over depth to cells seen from above, in two ways that give the same map.

Each pixel of each camera stands for a ray with a point at every depth bin. A cell's features are the sum over the
points in it: the features of their pixel, times the probability of their depth.

`cumsum` is the form of the published code: all points of a batch are laid out with their features, sorted by cell,
summed up along the whole list, and a cell's sum is the difference between two places of it. `embedding_bag` does not
lay out the points at all: cells are bags of pixel numbers, the probabilities are the weights. Which point falls into
which cell depends on the cameras' mounting alone, so it is worked out once for each rig.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn
from torch.nn import functional

from hotlap_recipes.lss_swin.grid import Axis, BevGrid

OUTSIDE = -1
# Bags of a rig of six cameras take about 1 MB. A real data set has one rig for each drive: more are kept than
# its cars have, fewer than would fill a memory.
MOST_RIGS = 256


class Geometry(NamedTuple):
    """Where the cameras of a batch are: (batch, cameras, 3, 3) and (batch, cameras, 4, 4)."""

    intrinsics: torch.Tensor
    camera_to_ego: torch.Tensor
    rigs: Sequence[int]


class Frustum(NamedTuple):
    """The rays of one camera: a feature map of an image of `image_size`, with `depth` from, to and step in metres."""

    image_size: tuple[int, int]
    stride: int
    depth: Axis

    @property
    def shape(self) -> tuple[int, int, int]:
        start, end, step = self.depth
        height, width = self.image_size
        return round((end - start) / step), height // self.stride, width // self.stride

    def points(self) -> torch.Tensor:
        """(depths, height, width, 3): u * depth, v * depth and depth of each point, in pixels of the image."""
        bins, height, width = self.shape
        depths = self.depth[0] + self.depth[2] * torch.arange(bins)
        v, u = ((torch.arange(count) + 0.5) * self.stride - 0.5 for count in (height, width))
        grid = torch.meshgrid(depths, v, u, indexing="ij")
        return torch.stack((grid[2] * grid[0], grid[1] * grid[0], grid[0]), dim=-1)


def cells_of(
    points: torch.Tensor, intrinsics: torch.Tensor, camera_to_ego: torch.Tensor, grid: BevGrid
) -> torch.Tensor:
    """The number of the cell that each point of one camera falls into, or OUTSIDE: (depths, height, width)."""
    to_ego = camera_to_ego[:3, :3] @ torch.linalg.inv(intrinsics)
    places = points @ to_ego.T + camera_to_ego[:3, 3]
    number = torch.zeros(points.shape[:-1], dtype=torch.long, device=points.device)
    inside = torch.ones_like(number, dtype=torch.bool)
    for axis, (start, _, step), count in zip(range(3), (grid.x, grid.y, grid.z), grid.shape, strict=True):
        index = ((places[..., axis] - start) / step).floor().long()
        inside &= (index >= 0) & (index < count)
        if axis < 2:
            number = number * count + index
    return torch.where(inside, number, OUTSIDE)


class Splat(Protocol):
    """features (batch, cameras, channels, height, width) and depth (batch, cameras, depths, height, width)."""

    def __call__(self, features: torch.Tensor, depth: torch.Tensor, at: Geometry) -> torch.Tensor: ...


class CumsumSplat(nn.Module):
    """As it is mostly written: camera by camera, every point laid out, geometry worked out again in each step."""

    points: torch.Tensor

    def __init__(self, frustum: Frustum, grid: BevGrid) -> None:
        super().__init__()
        self.grid = grid
        self.register_buffer("points", frustum.points(), persistent=False)

    def forward(self, features: torch.Tensor, depth: torch.Tensor, at: Geometry) -> torch.Tensor:
        batch, cameras, channels = features.shape[:3]
        size = self.grid.shape[0] * self.grid.shape[1]
        rows, numbers = [], []
        for sample in range(batch):
            for camera in range(cameras):
                lifted = depth[sample, camera].unsqueeze(-1) * features[sample, camera].movedim(0, -1)
                mounted = (at.intrinsics[sample, camera], at.camera_to_ego[sample, camera])
                cells = cells_of(self.points, *mounted, self.grid)
                kept = cells != OUTSIDE
                rows.append(lifted[kept])
                numbers.append(cells[kept] + sample * size)
        summed, cells = summed_by_number(torch.cat(rows), torch.cat(numbers))
        canvas = summed.new_zeros(batch * size, channels).index_copy(0, cells, summed)
        return canvas.view(batch, *self.grid.shape[:2], channels).permute(0, 3, 1, 2)


class CumulativeSums(torch.autograd.Function):
    """Sums of the rows of equal number, and their numbers: by one cumulative sum, and a gather backward."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        order = numbers.argsort()
        rows, numbers = rows[order], numbers[order]
        sums = rows.cumsum(0)
        last = torch.ones_like(numbers, dtype=torch.bool)
        last[:-1] = numbers[1:] != numbers[:-1]
        sums = sums[last]
        ctx.save_for_backward(order, last)
        cells = numbers[last]
        ctx.mark_non_differentiable(cells)
        return torch.cat((sums[:1], sums[1:] - sums[:-1])), cells

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[torch.Tensor, None]:
        order, last = ctx.saved_tensors
        run = last.cumsum(0) - last.long()  # which sum each sorted row went into
        gradient = torch.empty(
            len(order), gradients[0].shape[1], dtype=gradients[0].dtype, device=order.device
        )
        gradient[order] = gradients[0][run]
        return gradient, None


def summed_by_number(rows: torch.Tensor, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    summed, cells = CumulativeSums.apply(rows, numbers)  # type: ignore[no-untyped-call]
    return summed, cells


class Bags(NamedTuple):
    """Points of one rig in the order of their cells: their pixel, their place in `depth`, where each cell begins."""

    pixels: torch.Tensor
    weights: torch.Tensor
    starts: torch.Tensor


def bags_of(cells: torch.Tensor, count: int) -> Bags:
    """From the cell of each point (cameras, depths, height, width) to the points of each of `count` cells."""
    _, depths, height, width = cells.shape
    area = height * width
    flat = cells.flatten()
    inside = (flat != OUTSIDE).nonzero().squeeze(1)
    order = inside[flat[inside].argsort(stable=True)]
    pixels = order // (depths * area) * area + order % area
    filled = torch.bincount(flat[order], minlength=count)
    return Bags(pixels, order, filled.cumsum(0) - filled)


class BagSplat(nn.Module):
    """`embedding_bag` over the pixels' features, with the bags of each rig kept."""

    def __init__(self, frustum: Frustum, grid: BevGrid) -> None:
        super().__init__()
        self.frustum = frustum
        self.grid = grid
        self._rigs: dict[tuple[int, torch.device], Bags] = {}

    def forward(self, features: torch.Tensor, depth: torch.Tensor, at: Geometry) -> torch.Tensor:
        batch, channels = features.shape[0], features.shape[2]
        bags = self.bags(at, features.device, features[0, :, 0].numel(), depth[0].numel())
        canvas = functional.embedding_bag(
            bags.pixels,
            features.movedim(2, -1).reshape(-1, channels),
            bags.starts,
            mode="sum",
            per_sample_weights=depth.flatten()[bags.weights],
        )
        return canvas.view(batch, *self.grid.shape[:2], channels).permute(0, 3, 1, 2)

    def bags(self, at: Geometry, device: torch.device, pixels: int, points: int) -> Bags:
        """Those of the whole batch: sample after sample, `pixels` and `points` of a sample further on."""
        each = [self.rig(rig, at, sample, device) for sample, rig in enumerate(at.rigs)]
        begins = torch.tensor([0, *(len(bags.pixels) for bags in each)]).cumsum(0).tolist()
        return Bags(
            torch.cat([bags.pixels + sample * pixels for sample, bags in enumerate(each)]),
            torch.cat([bags.weights + sample * points for sample, bags in enumerate(each)]),
            torch.cat([bags.starts + begins[sample] for sample, bags in enumerate(each)]),
        )

    def rig(self, rig: int, at: Geometry, sample: int, device: torch.device) -> Bags:
        if (rig, device) not in self._rigs:
            if len(self._rigs) >= MOST_RIGS:
                self._rigs.pop(next(iter(self._rigs)))
            points = self.frustum.points()
            cameras = zip(at.intrinsics[sample].cpu(), at.camera_to_ego[sample].cpu(), strict=True)
            cells = torch.stack([cells_of(points, *camera, self.grid) for camera in cameras])
            bags = bags_of(cells, self.grid.shape[0] * self.grid.shape[1])
            self._rigs[rig, device] = Bags(*(tensor.to(device) for tensor in bags))
        return self._rigs[rig, device]


SPLATS: dict[str, type[CumsumSplat] | type[BagSplat]] = {"embedding_bag": BagSplat, "cumsum": CumsumSplat}
