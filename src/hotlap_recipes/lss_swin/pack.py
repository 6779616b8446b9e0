"""Decode the images and draw the targets of a nuScenes tree once, into shards that are read at the speed of memory.

    python -m hotlap_recipes.lss_swin.pack --root data/nuscenes --out data/packed
    NuScenesBev("data/nuscenes", "train", packed="data/packed")

The work is done by hotlap.data: it may be cut off and taken up again, and `hotlap pack verify data/packed/train` reads
every byte.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np

from hotlap.data.pack.job import PackRequest
from hotlap.data.pack.run import pack
from hotlap_recipes.lss_swin import SIX
from hotlap_recipes.lss_swin.grid import Axis, BevGrid
from hotlap_recipes.lss_swin.sources import Decode, TreeItems, Wanted, made_as
from hotlap_recipes.lss_swin.tables import Split


class ItemsToPack:
    """What is stored of each item, as a map-style dataset. Its arguments are plain, as `hotlap pack` has them."""

    def __init__(
        self,
        root: str,
        split: Split,
        cameras: Sequence[str] = SIX,
        image_size: Sequence[int] = (128, 352),
        axes: Sequence[Axis] = (BevGrid.x, BevGrid.y, BevGrid.z),
        decode: Decode = "full",
    ) -> None:
        height, width = image_size
        wanted = Wanted(split, tuple(cameras), (height, width), BevGrid(*map(_axis, axes)), decode)
        self._items = TreeItems(root, wanted)
        self._made = json.dumps(made_as(wanted))

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        item: dict[str, Any] = {**self._items[index], "made": self._made}
        item["target_bits"] = np.packbits(item.pop("target"))
        return item


def _axis(ends: Sequence[float]) -> Axis:
    start, end, step = ends
    return float(start), float(end), float(step)


def pack_split(root: str, out: str | Path, wanted: Wanted) -> int:
    """Pack one split into a folder of its name; returns how many items it holds."""
    grid = wanted.grid
    arguments = {
        "root": str(root),
        "split": wanted.split,
        "cameras": list(wanted.cameras),
        "image_size": list(wanted.image_size),
        "axes": [list(grid.x), list(grid.y), list(grid.z)],
        "decode": wanted.decode,
    }
    source = f"{__spec__.name}:{ItemsToPack.__name__}"
    Path(out).mkdir(parents=True, exist_ok=True)
    return pack(
        PackRequest(source, "flat", arguments), Path(out) / wanted.split, _Told(wanted.split)
    ).seal.samples


class _Told:
    """Says how far the work is, where somebody looks on."""

    def __init__(self, split: str) -> None:
        self._split = split
        self._what = ""
        self._samples = self._done = 0

    def begin(self, what: str, samples: int, done: int) -> None:
        self._what, self._samples, self._done = what, samples, done

    def tell(self, samples: int, size: int) -> None:  # noqa: ARG002 (the port of hotlap.data)
        self._done += samples
        if sys.stderr.isatty():
            end = "\n" if self._done == self._samples else ""
            print(f"\r{self._what} {self._split}: {self._done} of {self._samples}", end=end, file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", required=True, help="folder of the nuScenes tree")
    parser.add_argument("--out", type=Path, required=True, help="folder of the shards")
    parser.add_argument("--splits", nargs="+", default=list(get_args(Split)), choices=get_args(Split))
    parser.add_argument("--cameras", nargs="+", default=list(SIX), metavar="NAME")
    parser.add_argument("--image-size", nargs=2, type=int, default=(128, 352), metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--decode", default="full", choices=get_args(Decode))
    for axis, ends in asdict(BevGrid()).items():
        ends_and_step = ("FROM", "TO", "STEP")
        parser.add_argument(
            f"--{axis}", nargs=3, type=float, default=ends, metavar=ends_and_step, help="metres of the grid"
        )
    options = parser.parse_args(arguments)
    height, width = options.image_size
    grid = BevGrid(*map(_axis, (options.x, options.y, options.z)))
    for split in options.splits:
        wanted = Wanted(split, tuple(options.cameras), (height, width), grid, options.decode)
        count = pack_split(options.root, options.out, wanted)
        print(f"{count} items of the split {split} are in {options.out / split}")


if __name__ == "__main__":
    main()
