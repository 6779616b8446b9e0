"""The official devkit opens the rendered tree, unpatched, and sees in it what our own reader sees.

It is skipped where the devkit is not installed. The devkit asks for an old NumPy, so give it an environment of its own
(docs/recipes/lss_swin.md says how) and name its Python in NUSCENES_DEVKIT_PYTHON.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hotlap_recipes.lss_swin.dataset import NuScenesBev
from hotlap_recipes.lss_swin.frames import read_frames
from hotlap_recipes.lss_swin.tables import Tables


@pytest.fixture(scope="module")
def devkit(tree, tmp_path_factory):
    """What the devkit reads from the tree."""
    python = os.environ.get("NUSCENES_DEVKIT_PYTHON")
    if not python and not importlib.util.find_spec("nuscenes"):
        pytest.skip(
            "nuscenes-devkit is not installed, and NUSCENES_DEVKIT_PYTHON names no Python that has it"
        )
    out = tmp_path_factory.mktemp("devkit") / "read.npz"
    script = Path(__file__).with_name("devkit_reading.py")
    done = subprocess.run(
        [python or sys.executable, script, tree, out], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    with np.load(out) as found:
        return dict(found)


@pytest.mark.parametrize("split", ["train", "val"])
def test_the_devkit_reads_the_same_key_frames_and_the_same_world(tree, devkit, split):
    frames = read_frames(Tables(tree), split, ["CAM_FRONT"])
    assert devkit[f"{split}_tokens"].tolist() == [frame.token for frame in frames]
    data = NuScenesBev(str(tree), split, ["CAM_FRONT"], decode="scaled")
    for item, drivable, area in zip(
        data, devkit[f"{split}_drivable"], devkit[f"{split}_vehicles"], strict=True
    ):
        ours, theirs = item["target"][1].numpy() > 0, drivable > 0
        assert (ours & theirs).sum() / (ours | theirs).sum() > 0.95
        ahead, left = np.indices((200, 200)) / 2 - 49.75
        cells = (item["target"][0].numpy() * (np.hypot(ahead, left) < 47)).sum()
        assert cells == pytest.approx(area, rel=0.15)


def test_the_devkit_finds_boxes_points_and_the_street(devkit):
    assert devkit["boxes_seen"].min() > 0
    assert devkit["lidar_points"].min() > 10_000
    assert devkit["on_mask"].all()
