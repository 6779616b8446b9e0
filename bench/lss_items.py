"""lss_swin: what an item costs, part by part, as usually written, with scaled decoding and packed; and how much of the
task a constant map would solve.

All is measured in one process with one thread, in turn: CPU milliseconds for each item, medians over rounds.

usage: python bench/lss_items.py [--root TREE] [--rounds 5] [--samples 12]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np
import torch

from hotlap_recipes.lss_swin import TARGETS
from hotlap_recipes.lss_swin.dataset import NuScenesBev
from hotlap_recipes.lss_swin.make_nuscenes import write_tree
from hotlap_recipes.lss_swin.pack import pack_split
from hotlap_recipes.lss_swin.pictures import as_planes, full_pixels, normalised, scaled_pixels
from hotlap_recipes.lss_swin.sources import TreeItems, Wanted, framing_of, rig_geometry
from interleave import host_line

Work = Callable[[int], object]
SIZE = (128, 352)


def parts_of(items: TreeItems, data: dict[str, NuScenesBev]) -> dict[str, Work]:
    """Whole items of each kind, and the parts of them, each called with the number of an item."""
    planes = np.empty((6, 3, *SIZE), np.uint8)

    def decoded(pixels_of: Callable[..., np.ndarray], index: int) -> None:
        frame = items.frames[index]
        for camera, path in enumerate(frame.files):
            as_planes(pixels_of(path, framing_of(frame.sizes[camera], SIZE)), planes[camera])

    return {
        "item, as usually written": data["full"].__getitem__,
        "  6 images, decoded in full": lambda index: decoded(full_pixels, index),
        "item, scaled decoding": data["scaled"].__getitem__,
        "  6 images, decoded at 1/4": lambda index: decoded(scaled_pixels, index),
        "item, packed": data["packed"].__getitem__,
        "part of all: normalise 6 images": lambda _: normalised(torch.from_numpy(planes)),
        "part of all but packed: draw the target": lambda index: items.target(items.frames[index]),
        "part of the usual: cameras of an item": lambda index: rig_geometry(items.frames[index], SIZE),
    }


def measured(works: dict[str, Work], count: int, rounds: int) -> dict[str, float]:
    """CPU milliseconds for each item; the kinds take turns within each round."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            start = time.process_time()
            for index in range(count):
                work(index)
            taken[name].append((time.process_time() - start) / count * 1e3)
    return {name: statistics.median(values) for name, values in taken.items()}


def constant_map_iou(root: Path) -> tuple[list[float], list[float]]:
    """The share of set cells, and the IoU on validation of the best map that is the same for all frames.

    The map holds the cells that are set in at least so many training frames; how many is chosen on validation, so no
    constant map of this kind does better.
    """
    train, val = (
        np.stack([items.target(frame) for frame in items.frames])
        for items in (TreeItems(root, Wanted(split)) for split in ("train", "val"))
    )
    often = train.mean(axis=0)
    scores = []
    for channel in range(len(TARGETS)):
        guesses = (often[channel] >= share for share in np.linspace(0.01, 0.99, 99))
        scores.append(max(iou(guess[None], val[:, channel] > 0) for guess in guesses))
    return val.mean(axis=(0, 2, 3)).tolist(), scores


def iou(guess: np.ndarray, truth: np.ndarray) -> float:
    return float((guess & truth).sum() / max((guess | truth).sum(), 1))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", type=Path, help="a nuScenes tree (default: one is rendered)")
    parser.add_argument(
        "--samples", type=int, default=12, help="key frames a scene of the rendered tree (default 12)"
    )
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as scratch:
        root = options.root or Path(scratch) / "nuscenes"
        if options.root is None:
            write_tree(root, samples=options.samples)
        pack_split(str(root), Path(scratch) / "packed", Wanted("val"))
        data = {kind: NuScenesBev(str(root), "val", decode=kind) for kind in ("full", "scaled")}
        data["packed"] = NuScenesBev(str(root), "val", packed=f"{scratch}/packed")
        works = parts_of(TreeItems(root, Wanted("val")), data)
        costs = measured(works, min(12, len(data["full"])), options.rounds)
        shares, scores = constant_map_iou(root)
    print(host_line())
    for name, cost in costs.items():
        print(f"{name:42}{cost:8.2f} ms")
    usual = costs["item, as usually written"]
    for kind in ("item, scaled decoding", "item, packed"):
        print(f"{kind}: {usual / costs[kind]:.1f} times as many items a CPU second as usually written")
    for name, share, score in zip(TARGETS, shares, scores, strict=True):
        print(f"{name}: {share:.1%} of the cells are set; IoU of the best constant map {score:.3f}")


if __name__ == "__main__":
    main()
