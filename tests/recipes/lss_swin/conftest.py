"""A small rendered nuScenes tree, made once for each process, and copies of it that a test may damage."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import pytest
import torch

from hotlap_recipes.lss_swin.make_nuscenes import VERSION, write_tree

with warnings.catch_warnings():  # of mmengine as it is imported: it asks torch for parts that are to go
    warnings.simplefilter("ignore")
    import mmengine.runner  # noqa: F401

SCENES = ("scene-0061", "scene-0553", "scene-0103")
"""Two for training, in two towns and with two cars, and one for validation in the town of the second."""
SAMPLES = 2


@pytest.fixture(scope="session")
def tree(tmp_path_factory) -> Path:
    """Four key frames for training and two for validation."""
    root = tmp_path_factory.mktemp("nuscenes")
    cv2.setNumThreads(1)  # this comes before `one_thread`
    write_tree(root, SCENES, SAMPLES)
    return root


@pytest.fixture
def own_tree(tree, tmp_path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copytree(tree, tmp_path / "nuscenes"))


@pytest.fixture
def edit_table() -> Callable[[Path, str, Callable[[list[Any]], Any]], Path]:
    """`edit_table(root, "sample", change)` calls `change` with the rows and writes them back."""

    def edit(root: Path, table: str, change: Callable[[list[Any]], Any]) -> Path:
        path = root / VERSION / f"{table}.json"
        rows = json.loads(path.read_text())
        change(rows)
        path.write_text(json.dumps(rows))
        return path

    return edit


@pytest.fixture(autouse=True)
def one_thread():
    """Two threads wait for each other at every operation, for long where another process holds a core."""
    torch_threads, cv2_threads = torch.get_num_threads(), cv2.getNumThreads()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    yield
    torch.set_num_threads(torch_threads)
    cv2.setNumThreads(cv2_threads)
