"""Tarred audio as NeMo reads it: audio_N.tar with flat names, and tarred_audio_manifest.json.

What it stores
    One sound for each sample in the tar; text, duration and everything else in the manifest, with `shard_id`.
Who reads it
    NeMo (is_tarred, `audio__OP_0..N_CL_.tar`, also sharded manifests), webdataset, hotlap.data.open_shards.
What it costs
    Nothing but the tar's heads: the sound is copied as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from hotlap.data.samples import SampleError, plain_value
from hotlap.data.tarshards import NEMO_MANIFEST, Keys, MappedTar, TarWriter
from hotlap.facts.codec import write_text
from hotlap.ports.shard_format import Fields, ShardFormat, ShardReader, ShardWriter

PIECES = "sharded_manifests"
_OWN = ("audio_filepath", "shard_id")


class Nemo(ShardFormat):
    id: ClassVar[str] = "nemo"
    suffix: ClassVar[str] = ".tar"
    stem: ClassVar[str] = "audio_"

    def write(self, path: Path) -> ShardWriter:
        return NemoWriter(path)

    def open(self, path: Path) -> ShardReader:
        return NemoReader(path)

    def recognises(self, path: Path) -> bool:
        return super().recognises(path) and (path.parent / NEMO_MANIFEST).exists()

    def together(self, folder: Path, shards: Sequence[str]) -> dict[str, str]:
        pieces = [_piece(folder / each).read_text(encoding="utf-8") for each in shards]
        return {NEMO_MANIFEST: "".join(pieces)}

    def hints(self, folder: Path, shards: Sequence[str]) -> dict[str, str]:
        span = f"_OP_0..{len(shards) - 1}_CL_"
        return {
            "tarred_audio_filepaths": f"{folder}/{self.stem}{span}{self.suffix}",
            "manifest_filepath": f"{folder}/{NEMO_MANIFEST}",
        }


class NemoWriter(ShardWriter):
    def __init__(self, path: Path) -> None:
        self._tar = TarWriter(path)
        self._path = path
        self._lines: list[str] = []

    def add(self, key: str, fields: Mapping[str, Any]) -> None:
        sounds = [name for name, value in fields.items() if isinstance(value, bytes | memoryview)]
        entry = {name: value for name, value in fields.items() if name not in sounds}
        if len(sounds) != 1 or "." in sounds[0] or not all(plain_value(each) for each in entry.values()):
            raise SampleError(
                f"sample '{key}' has the fields {sorted(fields)}; NeMo's layout holds one sound and plain values.",
                "pack as tar, flat or parquet",
            )
        self._tar.add(key, sounds[0], fields[sounds[0]])
        line = {"audio_filepath": f"{key}.{sounds[0]}", **entry, "shard_id": _number(self._path)}
        self._lines.append(json.dumps(line, ensure_ascii=False) + "\n")

    def close(self) -> None:
        self._tar.close()
        piece = _piece(self._path)
        piece.parent.mkdir(exist_ok=True)
        write_text(piece, "".join(self._lines), shared=True)

    def discard(self) -> None:
        self._tar.discard()


class NemoReader(ShardReader):
    def __init__(self, path: Path) -> None:
        self._tar = MappedTar(path)
        self._keys = Keys(self._tar.index)
        self._entries = _entries(path)

    @property
    def keys(self) -> Sequence[str]:
        return self._keys

    def read(self, position: int) -> Fields:
        key = self._keys[position]
        ((suffix, sound),) = self._tar.files(position).items()
        try:
            entry = self._entries[f"{key}.{suffix}"]
        except KeyError:
            what = f"{self._tar.path} holds '{key}.{suffix}', which no manifest beside it describes."
            raise SampleError(what, "pack it again") from None
        return {suffix: sound, **{name: value for name, value in entry.items() if name not in _OWN}}


def _entries(tar: Path) -> dict[str, dict[str, Any]]:
    """The manifest's lines on this shard; tars that NeMo made may have one manifest for all."""
    manifest = _piece(tar) if _piece(tar).exists() else tar.parent / NEMO_MANIFEST
    try:
        lines = [
            json.loads(line) for line in manifest.read_text(encoding="utf-8").split("\n") if line.strip()
        ]
        return {each["audio_filepath"]: each for each in lines if each["shard_id"] == _number(tar)}
    except (OSError, ValueError, KeyError) as error:
        raise SampleError(f"{manifest} cannot be read: {error}.", "pack it again") from None


def _piece(tar: Path) -> Path:
    return tar.parent / PIECES / f"manifest_{_number(tar)}.json"


def _number(tar: Path) -> int:
    found = re.search(r"(\d+)$", tar.stem)
    return int(found[1]) if found else 0
