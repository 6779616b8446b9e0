"""Lift, splat, shoot: a Swin reads each image, its pixels are put where they may be, and the map is read off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from mmengine.model import BaseDataPreprocessor, BaseModel
from torch import nn
from torch.nn import functional
from transformers import SwinBackbone, SwinConfig

from hotlap_recipes.lss_swin import TARGETS, BadInputError
from hotlap_recipes.lss_swin.grid import Axis, BevGrid
from hotlap_recipes.lss_swin.splat import SPLATS, Frustum, Geometry


class Size(NamedTuple):
    """The Swin's patches in pixels and windows in patches, its widths and depths; the lifted features; the map's."""

    patch: int
    window: int
    embed_dim: int
    depths: tuple[int, ...]
    num_heads: tuple[int, ...]
    features: int
    bev: int


# `base` is Swin-T with the widths of the published lift-splat-shoot. `tiny` computes so little that decoding and
# splatting bound it on a CPU, as they do beside a GPU.
SIZES = {
    "base": Size(4, 7, 96, (2, 2, 6, 2), (3, 6, 12, 24), features=64, bev=64),
    "tiny": Size(8, 4, 24, (1, 1), (2, 4), features=64, bev=8),
}


class ImageEncoder(nn.Module):
    """Images (count, 3, height, width) to features and depth distributions at one pixel in `stride`."""

    def __init__(self, size: Size, stride: int, depths: int, drop_path_rate: float) -> None:
        super().__init__()
        strides = {f"stage{at}": size.patch * 2 ** (at - 1) for at in range(1, len(size.depths) + 1)}
        read = [stage for stage, each in strides.items() if each >= stride]
        if stride not in strides.values():
            raise BadInputError(
                f"model.stride is {stride}, and this Swin has maps at {', '.join(map(str, strides.values()))}.",
                f"give model.stride={max(strides.values())}.",
            )
        options: dict[str, Any] = {
            "patch_size": size.patch,
            "window_size": size.window,
            "embed_dim": size.embed_dim,
            "depths": list(size.depths),
            "num_heads": list(size.num_heads),
            "drop_path_rate": drop_path_rate,
            "out_features": read,
        }
        self.backbone = SwinBackbone(SwinConfig(**options))
        for name, parameter in self.backbone.named_parameters():
            if name.startswith(
                "swin.layernorm."
            ):  # no map is read behind it: DDP would wait for its gradients
                parameter.requires_grad_(False)
        self.depths = depths
        self.mix = ConvBlock(sum(self.backbone.channels), size.features)
        self.head = nn.Conv2d(size.features, depths + size.features, 1)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        finest, *coarser = self.backbone(images).feature_maps
        enlarged = [functional.interpolate(each, finest.shape[2:], mode="bilinear") for each in coarser]
        mixed = self.head(self.mix(torch.cat((finest, *enlarged), dim=1)))
        # Sums over many points, and a softmax: in full precision whatever the rest is in.
        return mixed[:, self.depths :].float(), mixed[:, : self.depths].float().softmax(dim=1)


class ConvBlock(nn.Sequential):
    def __init__(self, channels_in: int, channels_out: int, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(channels_out),
            nn.ReLU(inplace=True),
        )


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = ConvBlock(channels, channels)
        self.second = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return functional.relu(features + self.second(self.first(features)))


class BevEncoder(nn.Module):
    """Reads the map at half, a quarter and an eighth of its cells, and draws the targets at full size."""

    def __init__(self, channels_in: int, width: int, classes: int) -> None:
        super().__init__()
        self.fine = nn.Sequential(ConvBlock(channels_in, width, 2), Residual(width))
        self.middle = nn.Sequential(ConvBlock(width, 2 * width, 2), Residual(2 * width))
        self.coarse = nn.Sequential(ConvBlock(2 * width, 4 * width, 2), Residual(4 * width))
        self.to_quarter = ConvBlock(6 * width, 2 * width)
        self.to_half = ConvBlock(3 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, canvas: torch.Tensor) -> torch.Tensor:
        half = self.fine(canvas)
        quarter = self.middle(half)
        eighth = self.coarse(quarter)
        quarter = self.to_quarter(_beside(eighth, quarter))
        drawn = self.head(self.to_half(_beside(quarter, half)))
        # Enlarged as two channels, not as `width`: the same map for a fraction of the time.
        return functional.interpolate(drawn, canvas.shape[2:], mode="bilinear")


def _beside(coarse: torch.Tensor, fine: torch.Tensor) -> torch.Tensor:
    return torch.cat((functional.interpolate(coarse, fine.shape[2:], mode="bilinear"), fine), dim=1)


class LiftSplatSwin(nn.Module):
    """Images (batch, cameras, 3, height, width) to logits (batch, classes, X, Y); any number of cameras."""

    def __init__(
        self,
        image_size: tuple[int, int],
        grid: BevGrid,
        size: str = "base",
        stride: int = 16,
        depth: Axis = (4.0, 45.0, 1.0),
        splat: str = "embedding_bag",
        drop_path_rate: float = 0.1,
    ) -> None:
        super().__init__()
        frustum = Frustum(image_size, stride, depth)
        self.encoder = ImageEncoder(SIZES[size], stride, frustum.shape[0], drop_path_rate)
        self.splat = SPLATS[splat](frustum, grid)
        self.bev = BevEncoder(SIZES[size].features, SIZES[size].bev, len(TARGETS))

    def forward(self, images: torch.Tensor, at: Geometry) -> torch.Tensor:
        features, depth = self.encoder(images.flatten(0, 1))
        lifted, likely = (each.unflatten(0, images.shape[:2]) for each in (features, depth))
        canvas: torch.Tensor = self.splat(lifted, likely, at)
        logits: torch.Tensor = self.bev(canvas)
        return logits.float()


class BevPreprocessor(BaseDataPreprocessor):  # type: ignore[misc]
    """Moves a batch to the device, all but the numbers of its rigs: to read them there would wait for the device."""

    def forward(self, data: Mapping[str, Any], training: bool = False) -> dict[str, Any]:
        rigs = [int(rig) for rig in data["rig"]]
        return {**self.cast_data({name: each for name, each in data.items() if name != "rig"}), "rig": rigs}


class BevSegmentor(BaseModel):  # type: ignore[misc]
    """The network with its loss, as mmengine's Runner calls it.

    A class's cells count `pos_weight` times where they are set: vehicles cover little of a map.
    """

    pos_weight: torch.Tensor

    def __init__(self, network: LiftSplatSwin, pos_weight: Sequence[float]) -> None:
        super().__init__(data_preprocessor=BevPreprocessor(non_blocking=True))
        self.network = network
        self.register_buffer("pos_weight", torch.tensor(pos_weight).view(-1, 1, 1), persistent=False)

    def forward(
        self,
        images: torch.Tensor,
        intrinsics: torch.Tensor,
        camera_to_ego: torch.Tensor,
        rig: Sequence[int],
        target: torch.Tensor,
        mode: str = "tensor",
    ) -> Any:
        logits = self.network(images, Geometry(intrinsics, camera_to_ego, rig))
        if mode == "loss":
            entropy = functional.binary_cross_entropy_with_logits(logits, target, pos_weight=self.pos_weight)
            return {"loss": entropy}
        if mode == "predict":
            return list(zip(logits > 0, target.bool(), strict=True))
        return logits
