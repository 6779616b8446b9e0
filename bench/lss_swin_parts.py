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
from hotlap_recipes.lss_swin.splat import SPLATS, Frustum, Geometry
from hotlap_recipes.lss_swin.translate import build_model, grid_of

CONFIG = "configs/lss_swin_nuscenes.py"
BATCH = 4
FEATURES = 64
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


def splat_ms(way: str, at: Geometry, config: Any) -> tuple[float, float]:
    """Forward, and forward with backward, of a sample; the same for every size, as all lift 64 features."""
    frustum = Frustum(tuple(config.data.image_size), config.model.stride, tuple(config.model.depth))
    splat = SPLATS[SPLAT[way]](frustum, grid_of(config))
    depths, height, width = frustum.shape
    cameras = at.intrinsics.shape[1]
    features = torch.randn(BATCH, cameras, FEATURES, height, width, requires_grad=True)
    depth = torch.randn(BATCH, cameras, depths, height, width).softmax(2).requires_grad_()
    gradient = torch.ones_like(splat(features, depth, at))

    def forward() -> None:
        with torch.no_grad():
            splat(features, depth, at)

    def both() -> None:
        splat(features, depth, at).backward(gradient)

    return cpu_ms(forward, 5) / BATCH, cpu_ms(both, 5) / BATCH


def network_ms(model: BevSegmentor, batch: dict[str, Any], runs: int) -> tuple[float, float]:
    """A forward in evaluation, and a whole step, of a sample."""
    inputs = model.data_preprocessor(batch)
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad])

    def step() -> None:
        optimizer.zero_grad()
        model(**inputs, mode="loss")["loss"].backward()
        optimizer.step()

    trained = cpu_ms(step, runs) / BATCH
    return cpu_ms(lambda: model.eval().val_step(batch), runs) / BATCH, trained


def parts(options: argparse.Namespace, packed: Path) -> None:
    torch.set_num_threads(1)
    config = load(CONFIG)
    fast = NuScenesBev(str(options.root), "train", decode="scaled", packed=str(packed))
    items = {"naive": item_ms(NuScenesBev(str(options.root), "train", decode="full")), "fast": item_ms(fast)}
    batch = default_collate([fast[index] for index in range(BATCH)])
    at = Geometry(batch["intrinsics"], batch["camera_to_ego"], batch["rig"].tolist())
    splats = {way: splat_ms(way, at, config) for way in SPLAT}
    for size, runs in (("tiny", 5), ("base", 1)):
        drawn, trained = network_ms(build_model(load(CONFIG, {"model.size": size})), batch, runs)
        rest = {"forward": drawn - splats["fast"][0], "step": trained - splats["fast"][1]}
        show(size, {way: by_part(way, items[way], splats[way], rest) for way in SPLAT})


def by_part(way: str, item: float, splat: tuple[float, float], rest: dict[str, float]) -> dict[str, float]:
    evaluation = EVALUATED[way] * (item + splat[0] + rest["forward"])
    return {
        "items (decode)": item,
        "splat": splat[1],
        "rest of the step": rest["step"],
        "evaluation": evaluation,
    }


def show(size: str, found: dict[str, dict[str, float]]) -> None:
    sums = {way: sum(each.values()) for way, each in found.items()}
    print(f"\n{size}, batch {BATCH}, six 128 x 352 images, one thread: CPU ms of a trained sample")
    print(f"{'part':20} {'naive':>9} {'share':>7} {'fast':>9} {'share':>7}")
    for part in found["naive"]:
        row = [(found[way][part], found[way][part] / sums[way]) for way in SPLAT]
        print(f"{part:20}" + "".join(f" {ms:9.1f} {share:7.0%}" for ms, share in row))
    bare = {way: sums[way] - found[way]["evaluation"] for way in SPLAT}
    for name, totals in (("with evaluation", sums), ("without", bare)):
        rates = {way: 1e3 / total for way, total in totals.items()}
        gain = rates["fast"] / rates["naive"]
        print(
            f"samples a CPU second {name}: naive {rates['naive']:.2f}, fast {rates['fast']:.2f}, {gain:.2f}x",
            flush=True,
        )
