"""Does the nest recipe compute what NeMo 3.0.0 computes? Same weights, same sounds, same mask, side by side.

python bench/nest_alignment.py --nemo-python /path/to/python                       small, on recorded prompts
python bench/nest_alignment.py --nemo-python ... --golden tests/recipes/nest/nemo_answers.npz
    stores what NeMo answers for a very small model, so that the tests can compare without NeMo
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra import compose, initialize_config_module
from omegaconf import DictConfig

from hotlap_recipes.nest.export import from_nemo, nemo_config
from hotlap_recipes.nest.make_data import available, generated, prompts
from hotlap_recipes.nest.model import Nest

BENCH = Path(__file__).parent
RATE = 16000
FEW = 48  # frames of features that are stored: they are as many as all else together
GOLDEN = [
    "size=tiny",
    "model.num_classes=64",
    "model.encoder.d_model=16",
    "model.encoder.subsampling_conv_channels=8",
]


def config_of(overrides: Sequence[str], name: str = "nest_fast-conformer_fast") -> DictConfig:
    with initialize_config_module("hotlap_recipes.nest.configs", version_base=None):
        return compose(name, [*overrides, "model.train_ds.manifest_filepath=none"])


def sounds(clips: int, most_s: float, seed: int) -> dict[str, Any]:
    """Clips of several lengths, padded; disturbed copies; the frames that are masked."""
    random = np.random.default_rng(seed)
    speak = prompts if available("asterisk") and clips > 3 else generated
    spoken = [each for each in speak(8 * clips, random) if len(each) >= RATE][:clips]
    spoken = [each[: int(RATE * most_s)] for each in spoken]
    lengths = np.array([len(each) for each in spoken])
    audio = np.zeros((clips, lengths.max()), np.int16)
    for row, each in zip(audio, spoken, strict=True):
        row[: len(each)] = np.clip(each, -1, 1) * 32767
    noise = random.normal(0, 30, audio.shape) * (np.arange(lengths.max()) < lengths[:, None])
    noisy = np.clip(audio + noise, -32768, 32767).astype(np.int16)
    frames = -(-(lengths.max() // 160 + 1) // 16) * 16
    starts = random.random((clips, frames)) < 0.02
    masked = np.stack([np.convolve(row, np.ones(40))[:frames] > 0 for row in starts])
    masked &= np.arange(frames) < (lengths // 160)[:, None]
    return {"audio": audio, "noisy": noisy, "lengths": lengths, "masked": masked}


def asked_of_nemo(python: str, config: DictConfig, inputs: dict[str, Any], seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        np.savez(here / "sounds.npz", **inputs)
        asked = {"seed": seed, "sounds": str(here / "sounds.npz"), "model": nemo_config(config.model)}
        (here / "asked.json").write_text(json.dumps(asked))
        command = [
            python,
            str(BENCH / "nest_nemo.py"),
            "answers",
            str(here / "asked.json"),
            str(here / "out.npz"),
        ]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise SystemExit(f"NeMo failed:\n{ended.stderr[-2000:]}")
        return dict(np.load(here / "out.npz"))


def compared(config: DictConfig, found: dict[str, Any]) -> dict[str, float]:
    """Largest differences on what is sound; how many codes differ."""
    model = Nest(config.model).eval()
    weights = {key.removeprefix("weights/"): value for key, value in found.items() if "/" in key}
    model.load_state_dict(from_nemo({key: torch.from_numpy(value) for key, value in weights.items()}))
    audio, noisy = (torch.from_numpy(found[name]).float() / 32768 for name in ("audio", "noisy"))
    lengths, masked = torch.from_numpy(found["lengths"]), torch.from_numpy(found["masked"])
    with torch.no_grad():
        features, _ = model.preprocessor(audio, lengths)
        outcome = model(audio, lengths, noisy, masked)
    real = np.arange(found["codes"].shape[1]) < found["encoded_len"][:, None]
    whole = np.arange(found["codes"].shape[1]) < (found["lengths"] // 160 // 8)[:, None]
    codes = outcome.codes.numpy()
    return {
        "features": float(
            np.abs(features.numpy()[:, :, : found["features"].shape[2]] - found["features"]).max()
        ),
        "encoder": float(np.abs(outcome.encoded.numpy() - found["encoded"])[real].max()),
        "encoder_scale": float(np.abs(found["encoded"][real]).std()),
        "codes_compared": float(whole.sum() * codes.shape[2]),
        "codes_different": float((codes != found["codes"])[whole].sum()),
        "loss": abs(float(outcome.loss) - float(found["loss"])),
        "loss_of_nemo": float(found["loss"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--nemo-python", default=shutil.which("nemo-python"), required=not shutil.which("nemo-python")
    )
    parser.add_argument("--size", default="small")
    parser.add_argument("--clips", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--golden", type=Path)
    options = parser.parse_args()
    overrides, clips, most = [f"size={options.size}"], options.clips, 20.0
    if options.golden:
        overrides, clips, most = GOLDEN, 2, 1.6
    config = config_of(overrides)
    found = asked_of_nemo(options.nemo_python, config, sounds(clips, most, options.seed), options.seed)
    if options.golden:
        found["features"] = found["features"][:, :, :FEW]
        np.savez_compressed(options.golden, **found)
    for search, frames in (("product", "masked"), ("distance", "all")):
        config.model.quantizer.search, config.model.loss.frames = search, frames
        figures = compared(config, found)
        print(f"quantizer.search={search} loss.frames={frames}")
        print(f"  features differ by at most {figures['features']:.1e}")
        scale = figures["encoder_scale"]
        print(
            f"  encoder output differs by at most {figures['encoder']:.1e} (its values are of size {scale:.2f})"
        )
        print(f"  codes: {figures['codes_different']:.0f} of {figures['codes_compared']:.0f} differ")
        print(f"  masked loss {figures['loss_of_nemo']:.5f}, differs by {figures['loss']:.1e}")


if __name__ == "__main__":
    main()
