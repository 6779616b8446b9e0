"""Weights go to NeMo and come back as they were. With NEMO_PYTHON set, NeMo itself opens them and answers the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_module

from hotlap_recipes.nest.export import from_nemo, main, read_nemo, to_nemo, write_nemo
from hotlap_recipes.nest.model import Nest

ANSWERS = Path(__file__).with_name("nemo_answers.npz")
BENCH = Path(__file__).parents[3] / "bench"
NEMO = os.environ.get("NEMO_PYTHON", "")
SIZE = (
    "size=tiny",
    "model.num_classes=64",
    "model.encoder.d_model=16",
    "model.encoder.subsampling_conv_channels=8",
)


@pytest.fixture(scope="module")
def config():
    with initialize_config_module("hotlap_recipes.nest.configs", version_base=None):
        return compose("nest_fast-conformer_fast", list(SIZE))


@pytest.fixture(scope="module")
def of_nemo():
    """The state dict that NeMo's own model had."""
    stored = np.load(ANSWERS)
    return {
        key.removeprefix("weights/"): torch.from_numpy(stored[key])
        for key in stored
        if key.startswith("weights/")
    }


def test_keys_are_those_of_nemo_one_by_one_and_back(config, of_nemo):
    own = Nest(config.model).state_dict()
    assert to_nemo(own).keys() == of_nemo.keys()
    assert {key: (value.shape, value.dtype) for key, value in to_nemo(own).items()} == {
        key: (value.shape, value.dtype) for key, value in of_nemo.items()
    }
    back = to_nemo(from_nemo(of_nemo))
    assert back.keys() == of_nemo.keys() and all(torch.equal(back[key], of_nemo[key]) for key in back)


def test_weights_survive_the_archive_and_the_model_to_the_last_bit(config, of_nemo, tmp_path):
    model = Nest(config.model)
    model.load_state_dict(from_nemo(of_nemo))
    write_nemo(tmp_path / "nest.nemo", model.state_dict(), config.model)
    other = Nest(config.model)
    other.load_state_dict(read_nemo(tmp_path / "nest.nemo"))
    there = to_nemo(other.state_dict())
    assert all(torch.equal(there[key], of_nemo[key]) for key in of_nemo)
    assert torch.equal(other.quantizer.quick_codes, model.quantizer.quick_codes)


def test_the_command_says_what_is_wrong(tmp_path, capsys):
    (tmp_path / "text.ckpt").write_text("nothing")
    assert main(["to-nemo", str(tmp_path / "text.ckpt"), str(tmp_path / "out.nemo")]) == 2
    assert "is no checkpoint of this recipe" in capsys.readouterr().err
    assert main(["from-nemo", str(tmp_path / "gone.nemo"), str(tmp_path / "out.pt")]) == 2
    assert "there is no file" in capsys.readouterr().err


@pytest.mark.skipif(not NEMO, reason="NEMO_PYTHON names no Python that has NeMo")
def test_nemo_opens_the_archive_and_answers_the_same(config, of_nemo, tmp_path):
    model = Nest(config.model).eval()
    write_nemo(tmp_path / "nest.nemo", model.state_dict(), config.model)
    command = [
        NEMO,
        BENCH / "nest_nemo.py",
        "restored",
        tmp_path / "nest.nemo",
        ANSWERS,
        tmp_path / "out.npz",
    ]
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    answers, stored = np.load(tmp_path / "out.npz"), np.load(ANSWERS)
    audio, noisy = (torch.from_numpy(stored[name]).float() / 32768 for name in ("audio", "noisy"))
    with torch.no_grad():
        outcome = model(audio, torch.from_numpy(stored["lengths"]), noisy, torch.from_numpy(stored["masked"]))
    real = np.arange(answers["encoded"].shape[1]) < answers["encoded_len"][:, None]
    assert np.abs(outcome.encoded.numpy() - answers["encoded"])[real].max() < 1e-4
    assert abs(float(outcome.loss) - float(answers["loss"])) < 1e-4


@pytest.mark.skipif(not NEMO, reason="NEMO_PYTHON names no Python that has NeMo")
def test_nemo_still_answers_as_it_did_when_its_answers_were_stored(tmp_path):
    command = [
        sys.executable,
        BENCH / "nest_alignment.py",
        "--nemo-python",
        NEMO,
        "--golden",
        tmp_path / "now.npz",
    ]
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    now, stored = np.load(tmp_path / "now.npz"), np.load(ANSWERS)
    assert np.allclose(now["loss"], stored["loss"], atol=1e-4)
    assert np.array_equal(now["codes"], stored["codes"])
    assert json.dumps(sorted(now)) == json.dumps(sorted(stored))
