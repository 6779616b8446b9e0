"""What each part of lss_swin's step costs in CPU time, naive and fast: used by lss_swin.py.

CPU time of one thread, in one process: others on the machine hardly change it, unlike samples a second.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import default_collate

from hotlap_recipes.lss_swin.config import load
from hotlap_recipes.lss_swin.dataset import NuScenesBev
from hotlap_recipes.lss_swin.model import BevSegmentor
from hotlap_recipes.lss_swin.splat import Geometry
from hotlap_recipes.lss_swin.translate import build_model, grid_of

BATCH = 4
ITEMS = 6
# Frames that are evaluated for each sample that is trained: 80 for every 10 and for every 2000 steps of 4.
EVALUATED = {"naive": 80 / (10 * BATCH), "fast": 80 / (2000 * BATCH)}
SPLAT = {"naive": "cumsum", "fast": "embedding_bag"}


def cpu_ms(call: Callable[[], Any], runs: int) -> float:
    """Median, after one call that is not counted."""
    call()
    seen = []
    for _ in range(runs):
        began = time.process_time()
        call()
        seen.append((time.process_time() - began) * 1e3)
    return statistics.median(seen)


def item_ms(data: NuScenesBev) -> float:
    return cpu_ms(lambda: [data[index] for index in range(ITEMS)], 3) / ITEMS


def splat_ms(
    model: BevSegmentor, at: Geometry, shape: tuple[int, ...], depths: int, runs: int
) -> tuple[float, float]:
    """Forward, and forward with backward, of a sample."""
    batch, cameras, _, height, width = shape
    features = torch.randn(shape, requires_grad=True)
    depth = torch.randn(batch, cameras, depths, height, width).softmax(2).requires_grad_()
    canvas = model.network.splat(features, depth, at)
    gradient = torch.ones_like(canvas)

    def forward() -> None:
        with torch.no_grad():
            model.network.splat(features, depth, at)

    def both() -> None:
        model.network.splat(features, depth, at).backward(gradient)

    return cpu_ms(forward, runs) / batch, cpu_ms(both, runs) / batch


def measured(size: str, way: str, root: Path, packed: Path, runs: int) -> dict[str, float]:
    """CPU milliseconds of a trained sample, part by part."""
    config = load("configs/lss_swin_nuscenes.py", {"model.size": size, "model.splat": SPLAT[way]})
    grid, model = grid_of(config), build_model(config)
    fast = NuScenesBev(str(root), "train", grid=grid, decode="scaled", packed=str(packed))
    data = fast if way == "fast" else NuScenesBev(str(root), "train", grid=grid, decode="full")
    batch = default_collate([fast[index] for index in range(BATCH)])
    inputs = model.data_preprocessor(batch)
    at = Geometry(inputs["intrinsics"], inputs["camera_to_ego"], inputs["rig"])
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad])

    def step() -> None:
        optimizer.zero_grad()
        model(**inputs, mode="loss")["loss"].backward()
        optimizer.step()

    cameras = batch["images"].shape[1]
    alone, trained = splat_ms(model, at, (BATCH, cameras, 64, 8, 22), 41, runs)
    whole = cpu_ms(step, runs) / BATCH
    evaluated = cpu_ms(lambda: model.eval().val_step(batch), runs) / BATCH
    items = item_ms(data)
    return {
        "items (decode)": items,
        "splat": trained,
        "rest of the step": whole - trained,
        "evaluation": EVALUATED[way] * (items + evaluated),
        "of it splat": EVALUATED[way] * alone,
    }


def parts(options: argparse.Namespace, packed: Path) -> None:
    torch.set_num_threads(1)
    for size, runs in (("tiny", 5), ("base", 2)):
        found = {way: measured(size, way, options.root, packed, runs) for way in SPLAT}
        sums = {
            way: sum(ms for part, ms in each.items() if part != "of it splat") for way, each in found.items()
        }
        print(f"\n{size}, batch {BATCH}, six 128 x 352 images, one thread: CPU ms of a trained sample")
        print(f"{'part':20} {'naive':>9} {'share':>7} {'fast':>9} {'share':>7}")
        for part in found["naive"]:
            row = [(found[way][part], found[way][part] / sums[way]) for way in SPLAT]
            print(f"{part:20}" + "".join(f" {ms:9.1f} {share:7.0%}" for ms, share in row))
        rates = {way: 1e3 / total for way, total in sums.items()}
        print(f"{'sum':20} {sums['naive']:9.1f} {'':7} {sums['fast']:9.1f}")
        print(
            f"samples a CPU second: naive {rates['naive']:.2f}, fast {rates['fast']:.2f}, "
            f"{rates['fast'] / rates['naive']:.2f}x",
            flush=True,
        )
