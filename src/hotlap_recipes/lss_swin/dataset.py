"""Key frames of a nuScenes tree as items for a DataLoader: images, camera geometry and what is to be drawn.

By default an item is made as such datasets are written: every image is decoded in full, and camera after camera goes
through a loop. `decode="scaled"` decodes at a fraction of the size and does the rest in few passes. `packed` names a
folder that `hotlap_recipes.lss_swin.pack` wrote: nothing is decoded any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

import numpy as np
import torch
from torch.utils.data import Dataset

from hotlap_recipes.lss_swin import SIX
from hotlap_recipes.lss_swin.frames import camera_to_ego
from hotlap_recipes.lss_swin.grid import BevGrid
from hotlap_recipes.lss_swin.pictures import MEAN, STD, full_pixels, normalised
from hotlap_recipes.lss_swin.sources import Decode, PackedItems, TreeItems, Wanted, framing_of


class BevItem(TypedDict):
    """N cameras; the target's channels are those of TARGETS."""

    images: torch.Tensor  # float32 (N, 3, height, width), normalised
    intrinsics: torch.Tensor  # float32 (N, 3, 3), of the resized and cropped image
    camera_to_ego: torch.Tensor  # float32 (N, 4, 4)
    rig: int  # equal numbers have equal intrinsics and extrinsics, in both splits
    target: torch.Tensor  # float32 (2, X, Y), 0 or 1


class NuScenesBev(Dataset[BevItem]):
    """Item i is one key frame of a split; scenes of mini_train and mini_val as the devkit splits them."""

    def __init__(
        self,
        root: str,
        split: Literal["train", "val"],
        cameras: Sequence[str] = SIX,
        image_size: tuple[int, int] = (128, 352),
        grid: BevGrid = BevGrid(),  # noqa: B008 (frozen)
        decode: Decode = "full",
        packed: str | None = None,
    ) -> None:
        height, width = image_size
        wanted = Wanted(split, tuple(cameras), (height, width), grid, decode)
        self._source = PackedItems(packed, wanted) if packed else TreeItems(root, wanted)

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> BevItem:
        if isinstance(self._source, TreeItems) and self._source.wanted.decode == "full":
            return _as_usually_written(self._source, index)
        raw = self._source[index]
        return {
            "images": normalised(torch.from_numpy(raw["planes"])),
            "intrinsics": torch.from_numpy(raw["intrinsics"]),
            "camera_to_ego": torch.from_numpy(raw["camera_to_ego"]),
            "rig": raw["rig"],
            "target": torch.from_numpy(raw["target"]).float(),
        }


def _as_usually_written(source: TreeItems, index: int) -> BevItem:
    frame = source.frames[index]
    images, intrinsics, extrinsics = [], [], []
    for path, size, calibration in zip(frame.files, frame.sizes, frame.calibrations, strict=True):
        framing = framing_of(size, source.wanted.image_size)
        image = torch.from_numpy(full_pixels(path, framing)).permute(2, 0, 1).float().div(255)
        images.append((image - MEAN) / STD)
        intrinsics.append(torch.tensor(framing.intrinsics(np.array(calibration["camera_intrinsic"]))).float())
        extrinsics.append(torch.tensor(camera_to_ego(calibration)).float())
    return {
        "images": torch.stack(images),
        "intrinsics": torch.stack(intrinsics),
        "camera_to_ego": torch.stack(extrinsics),
        "rig": frame.rig,
        "target": torch.from_numpy(source.target(frame)).float(),
    }
