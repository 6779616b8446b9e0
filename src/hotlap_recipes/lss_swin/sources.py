"""Where items come from, up to the last step: the files of a tree, or shards in which they were packed.

What an item is does not depend on it. Packed items are those of the tree, decoded as `decode` says: small images as
bytes, and the target as bits.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from hotlap.data import open_shards
from hotlap_recipes.lss_swin import SIX, BadInputError
from hotlap_recipes.lss_swin.frames import Frame, camera_to_ego, read_frames
from hotlap_recipes.lss_swin.geometry import Framing
from hotlap_recipes.lss_swin.grid import BevGrid
from hotlap_recipes.lss_swin.pictures import Pixels, as_planes, full_pixels, scaled_pixels
from hotlap_recipes.lss_swin.tables import Split, Tables
from hotlap_recipes.lss_swin.target import Mask, draw_target, read_drivable

Decode = Literal["full", "scaled"]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Wanted:
    """What the items are to be."""

    split: Split
    cameras: tuple[str, ...] = SIX
    image_size: tuple[int, int] = (128, 352)
    grid: BevGrid = BevGrid()  # noqa: RUF009 (frozen)
    decode: Decode = "full"

    def __post_init__(self) -> None:
        for name, value, known in (
            ("split", self.split, ("train", "val")),
            ("decode", self.decode, ("full", "scaled")),
        ):
            if value not in known:
                raise BadInputError(f"{name} is {value!r}.", f"choose {known[0]!r} or {known[1]!r}.")


class RawItem(TypedDict):
    planes: Pixels  # (N, 3, height, width)
    intrinsics: Floats  # (N, 3, 3)
    camera_to_ego: Floats  # (N, 4, 4)
    rig: int
    target: Mask  # (2, X, Y)


class TreeItems:
    """Items from the files of a nuScenes tree. What is the same for all items of a rig is computed once."""

    def __init__(self, root: str | Path, wanted: Wanted) -> None:
        self.wanted = wanted
        tables = Tables(root)
        self.frames = read_frames(tables, wanted.split, wanted.cameras)
        places = {frame.location for frame in self.frames}
        self._drivable = {place: read_drivable(tables.root, place) for place in places}
        self._geometry = {frame.rig: rig_geometry(frame, wanted.image_size) for frame in self.frames}

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> RawItem:
        frame = self.frames[index]
        pixels_of = scaled_pixels if self.wanted.decode == "scaled" else full_pixels
        planes = np.empty((len(frame.files), 3, *self.wanted.image_size), np.uint8)
        for camera, path in enumerate(frame.files):
            as_planes(
                pixels_of(path, framing_of(frame.sizes[camera], self.wanted.image_size)), planes[camera]
            )
        intrinsics, to_ego = self._geometry[frame.rig]
        return {
            "planes": planes,
            "intrinsics": intrinsics.copy(),
            "camera_to_ego": to_ego.copy(),
            "rig": frame.rig,
            "target": self.target(frame),
        }

    def target(self, frame: Frame) -> Mask:
        return draw_target(frame, self._drivable[frame.location], self.wanted.grid)


@cache
def framing_of(source: tuple[int, int], size: tuple[int, int]) -> Framing:
    return Framing.of(source, size)


def rig_geometry(frame: Frame, image_size: tuple[int, int]) -> tuple[Floats, Floats]:
    """Intrinsics of the resized images, and where each camera is."""
    framings = [framing_of(size, image_size) for size in frame.sizes]
    intrinsics = [
        framing.intrinsics(np.array(row["camera_intrinsic"]))
        for framing, row in zip(framings, frame.calibrations, strict=True)
    ]
    to_ego = [camera_to_ego(row) for row in frame.calibrations]
    return np.array(intrinsics, np.float32), np.array(to_ego, np.float32)


class PackedItems:
    """Items from shards. Nothing is decoded, and the tree is not needed any more."""

    def __init__(self, folder: str | Path, wanted: Wanted) -> None:
        self._folder = Path(folder) / wanted.split
        self._shape = (2, *wanted.grid.shape[:2])
        if not self._folder.is_dir():
            raise BadInputError(f"there are no packed items in {self._folder}.", _how_to_pack(folder, wanted))
        self._items = open_shards(self._folder)
        made, asked = json.loads(self._items[0]["made"]), made_as(wanted)
        for key, value in asked.items():
            if made.get(key) != value:
                what = f"the items in {self._folder} were packed with {key} {made.get(key)}, not {value}."
                raise BadInputError(what, _how_to_pack("ANOTHER_FOLDER", wanted))

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> RawItem:
        packed = self._items[index]
        bits = np.unpackbits(packed["target_bits"], count=int(np.prod(self._shape)))
        return {
            "planes": packed["planes"],
            "intrinsics": packed["intrinsics"],
            "camera_to_ego": packed["camera_to_ego"],
            "rig": packed["rig"],
            "target": bits.reshape(self._shape),
        }


def made_as(wanted: Wanted) -> dict[str, object]:
    """What is stored with each item, in values that JSON knows."""
    grid = {axis: list(map(float, ends)) for axis, ends in asdict(wanted.grid).items()}
    return {
        "split": wanted.split,
        "cameras": list(wanted.cameras),
        "image_size": list(wanted.image_size),
        "grid": grid,
        "decode": wanted.decode,
    }


def _how_to_pack(folder: str | Path, wanted: Wanted) -> str:
    """The command, with what is not as it is by default."""
    usual = Wanted(wanted.split)
    words = [f"python -m hotlap_recipes.lss_swin.pack --root ROOT --out {folder} --decode {wanted.decode}"]
    if wanted.image_size != usual.image_size:
        words.append(f"--image-size {wanted.image_size[0]} {wanted.image_size[1]}")
    if wanted.cameras != usual.cameras:
        words.append(f"--cameras {' '.join(wanted.cameras)}")
    for axis, ends in asdict(wanted.grid).items():
        if ends != getattr(usual.grid, axis):
            words.append(f"--{axis} {' '.join(f'{value:g}' for value in ends)}")
    return f"pack them: {' '.join(words)}"
