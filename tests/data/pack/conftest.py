"""Small sources of every kind, and a packer that shows nothing."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

from hotlap.data.pack.job import PackRequest
from hotlap.data.pack.run import Packed, pack


class Silent:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.began: list[tuple[str, int, int]] = []
        self.samples = self.bytes = 0

    def begin(self, what: str, samples: int, done: int) -> None:
        self.began.append((what, samples, done))

    def tell(self, samples: int, size: int) -> None:
        self.samples += samples
        self.bytes += size


@pytest.fixture
def silent() -> Silent:
    return Silent()


@pytest.fixture
def packed(silent, monkeypatch):
    """`packed(source, folder, format="flat", shards=3)`, in this process."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})

    def run(source, folder, **options) -> Packed:
        return pack(PackRequest(str(source), **options), Path(folder), silent)

    return run


@pytest.fixture
def speech(tmp_path) -> Path:
    """Two dozen sounds with a manifest: WAV and FLAC, names with dots, one file used twice, one cut out."""
    folder = tmp_path / "speech"
    (folder / "clips").mkdir(parents=True)
    random = np.random.default_rng(1)
    lines = []
    for number in range(24):
        frames = int(random.integers(200, 4000))
        name = f"clips/s.{number}.{'flac' if number % 4 == 3 else 'wav'}"
        sound = (random.normal(size=frames) * 3000).astype(np.int16)
        soundfile.write(folder / name, sound, 16000)
        lines.append({"audio_filepath": name, "duration": frames / 16000, "text": f"Satz {number} ß"})
    lines.append({**lines[4], "text": "again"})
    lines.append({**lines[5], "offset": 0.005, "duration": 0.0075, "text": "a part"})
    manifest = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "train_manifest.json").write_text(manifest)
    return folder


def jpeg(random: np.random.Generator, height: int = 24, width: int = 40) -> bytes:
    target = io.BytesIO()
    Image.fromarray(random.integers(0, 255, (height, width, 3), dtype=np.uint8)).save(target, "JPEG")
    return target.getvalue()


@pytest.fixture
def pictures(tmp_path) -> Path:
    random = np.random.default_rng(2)
    for label in ("cat", "dog", "eel"):
        folder = tmp_path / "pictures" / label
        folder.mkdir(parents=True)
        for number in range(6):
            (folder / f"{number}.jpeg").write_bytes(jpeg(random))
    return tmp_path / "pictures"


@pytest.fixture
def driving(tmp_path) -> Path:
    """A tree as nuScenes has it: 3 key frames of 2 cameras and a point cloud, and sweeps between them."""
    root, random = tmp_path / "driving", np.random.default_rng(3)
    tables: dict[str, list[dict[str, object]]] = {
        "scene": [{"token": "scene", "name": "scene-0061"}],
        "sensor": [],
        "calibrated_sensor": [],
        "sample": [{"token": f"frame{at}", "scene_token": "scene", "timestamp": 10 - at} for at in range(3)],
        "sample_data": [],
        "ego_pose": [{"token": f"pose{at}", "translation": [at, 0.5, 0.0]} for at in range(3)],
        "sample_annotation": [{"token": "box", "sample_token": "frame1", "size": [1.5, 2.0, 4.0]}],
    }
    for channel, suffix in (("CAM_FRONT", "jpg"), ("CAM_BACK", "jpg"), ("LIDAR_TOP", "pcd.bin")):
        (root / "samples" / channel).mkdir(parents=True)
        tables["sensor"].append({"token": channel, "channel": channel})
        tables["calibrated_sensor"].append({"token": f"{channel}-rig", "sensor_token": channel})
        for at in range(3):
            for is_key in (True, False):
                name = f"samples/{channel}/{at}-{is_key}.{suffix}"
                (root / name).write_bytes(jpeg(random) if suffix == "jpg" else random.bytes(40))
                tables["sample_data"].append(
                    {"token": name, "sample_token": f"frame{at}", "ego_pose_token": f"pose{at}", "filename": name,
                     "calibrated_sensor_token": f"{channel}-rig", "is_key_frame": is_key}
                )  # fmt: skip
    (root / "v1.0-mini").mkdir()
    for name, rows in tables.items():
        (root / "v1.0-mini" / f"{name}.json").write_text(json.dumps(rows))
    return root


@pytest.fixture
def user_module(tmp_path, monkeypatch):
    """Writes a module that can be imported from the working folder: `user_module("name", text)`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)

    return write
