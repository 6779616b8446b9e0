"""The data of bench/shards.py: made once, in the layout that each reader likes best."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import simplejpeg
import soundfile

from interleave import PYTHON

RATE = 16000
CLIPS = 320
PHOTOS = 48
WINDOWS = 40_000
SEQUENCES = 12_000


def make(folder: Path) -> None:
    """All sources, packed by hotlap and written for the peers; nothing of this is measured."""
    random = np.random.default_rng(0)
    for suffix in ("wav", "flac"):
        _speech(folder / suffix, suffix, random)
        _pack(folder / suffix, folder / f"{suffix}-packed", "nemo", 2)
    _photos(folder / "jpeg", random)
    _pack(folder / "jpeg", folder / "jpeg-packed", "tar", 2)
    windows = random.normal(size=(WINDOWS, 50, 12)).astype(np.float32)
    np.save(folder / "windows.npy", windows)
    _pack(folder / "windows.npy", folder / "windows-packed", "flat", 1)
    _sequences(folder, random)
    _pack(folder / "sequences.parquet", folder / "sequences-packed", "flat", 1)


def _pack(source: Path, target: Path, form: str, shards: int) -> None:
    command = [
        PYTHON,
        "-m",
        "hotlap",
        "pack",
        str(source),
        str(target),
        "--format",
        form,
        "--shards",
        str(shards),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _speech(folder: Path, suffix: str, random: np.random.Generator) -> None:
    """Voiced sound with pauses: harmonics under a moving envelope, and a little noise, so that FLAC has work to do."""
    folder.mkdir()
    lines = []
    for number in range(CLIPS):
        seconds = random.uniform(1.0, 8.0)
        time = np.arange(int(seconds * RATE)) / RATE
        pitch = np.cumsum(120 + 40 * np.sin(2 * np.pi * 0.7 * time + number)) / RATE
        voice = sum(np.sin(2 * np.pi * order * pitch) / order for order in range(1, 12))
        envelope = np.clip(np.sin(2 * np.pi * 2.2 * time), 0, 1)
        sound = 0.2 * voice * envelope + 0.003 * random.normal(size=len(time))
        soundfile.write(folder / f"{number:04}.{suffix}", sound, RATE, subtype="PCM_16")
        lines.append(
            json.dumps({"audio_filepath": f"{number:04}.{suffix}", "duration": len(time) / RATE, "text": ""})
        )
    (folder / "manifest.json").write_text("\n".join(lines) + "\n")


def _photos(folder: Path, random: np.random.Generator) -> None:
    """900 x 1600, with large shapes and fine grain, about as many bytes as a camera of nuScenes writes."""
    folder.mkdir()
    y, x = np.mgrid[0:900, 0:1600].astype(np.float32)
    for number in range(PHOTOS):
        planes = [
            120 + 70 * np.sin(x / random.uniform(20, 200) + shift) * np.cos(y / random.uniform(20, 200))
            for shift in range(3)
        ]
        grain = random.normal(size=(900, 1600, 1)) * 3
        photo = np.clip(np.stack(planes, -1) + grain, 0, 255).astype(np.uint8)
        (folder / f"{number:03}.jpg").write_bytes(simplejpeg.encode_jpeg(photo, quality=85))


def _sequences(folder: Path, random: np.random.Generator) -> None:
    lengths = np.clip(random.lognormal(5.0, 1.0, SEQUENCES), 12, 3000).astype(np.int64)
    values = random.integers(0, 30_000, lengths.sum()).astype(np.int32)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    np.savez(folder / "sequences.npz", values=values, offsets=offsets)
    column = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values))
    pq.write_table(pa.table({"tokens": column}), folder / "sequences.parquet", row_group_size=256)
