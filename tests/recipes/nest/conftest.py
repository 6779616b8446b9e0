"""Generated speech on disk, made once, and configs as Hydra composes them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module

from hotlap_recipes.nest import make_data


@pytest.fixture(scope="session")
def speech(tmp_path_factory) -> Path:
    """27 clips to train on and 3 to validate, of 1 to 10 s, and noise."""
    out = tmp_path_factory.mktemp("speech")
    make_data.write_speech(out, "numpy", 30, seed=3)
    return out


@pytest.fixture(scope="session")
def packed_once(speech, tmp_path_factory) -> Path:
    """The clips to train on in three shards; to be copied by who damages them."""
    out = tmp_path_factory.mktemp("shards") / "packed"
    command = [sys.executable, "-m", "hotlap", "pack", speech / "train_manifest.json", out, "--shards", 3]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    return out


@pytest.fixture
def packed(packed_once, tmp_path) -> Path:
    return shutil.copytree(packed_once, tmp_path / "packed")


@pytest.fixture
def composed(speech, tmp_path):
    """A config for the generated speech: small, and soon over."""

    def compose_it(*overrides: str, name: str = "nest_fast-conformer"):
        given = [
            "size=tiny",
            f"model.train_ds.manifest_filepath={speech}/train_manifest.json",
            f"model.train_ds.noise_manifest={speech}/noise_manifest.json",
            "model.train_ds.max_duration=3",
            "model.optim.lr=0.1",
            "model.optim.sched.warmup_steps=10",
            "trainer.accelerator=cpu",
            "trainer.enable_progress_bar=false",
            "+trainer.enable_model_summary=false",
            f"exp_manager.exp_dir={tmp_path}",
        ]
        with initialize_config_module("hotlap_recipes.nest.configs", version_base=None):
            return compose(name, [*given, *overrides])

    return compose_it


@pytest.fixture
def manifest(tmp_path):
    """Writes a manifest of lines, given as text or as what JSON is made of."""

    def write(*lines: object, name: str = "manifest.json") -> Path:
        path = tmp_path / name
        path.write_text(
            "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        )
        return path

    return write
