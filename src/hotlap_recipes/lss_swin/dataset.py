"""Key frames of a nuScenes tree as items for a DataLoader: images, camera geometry and what is to be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

import torch
from torch.utils.data import Dataset

from hotlap_recipes.lss_swin import SIX
from hotlap_recipes.lss_swin.grid import BevGrid

Decode = Literal["full", "scaled"]


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
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, index: int) -> BevItem:
        raise NotImplementedError
