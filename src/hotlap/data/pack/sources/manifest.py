"""Speech with a NeMo-style manifest: a JSON object on each line, with audio_filepath, duration and text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from hotlap.data.decode import SOUNDS, cut, duration_of
from hotlap.data.pack.source import Arguments, FileSource, no_arguments, read_intact, unique_keys
from hotlap.data.samples import Fields, SampleError


class Manifest(FileSource):
    """Sounds are copied as they are; an entry with an `offset` is cut out of its file."""

    @classmethod
    def recognises(cls, name: str) -> bool:
        return _manifest_of(Path(name)) is not None

    def __init__(self, name: str, arguments: Arguments) -> None:
        no_arguments(name, arguments)
        path = _manifest_of(Path(name))
        assert path is not None
        self._path = path
        self._text = path.read_text(encoding="utf-8")
        self._entries = [
            _entry(line, path, number)
            for number, line in enumerate(self._text.split("\n"), 1)
            if line.strip()
        ]

    @cached_property
    def keys(self) -> Sequence[str]:
        """As NeMo flattens names, from the path as the manifest has it."""
        return unique_keys(str(Path(each["audio_filepath"]).with_suffix("")) for each in self._entries)

    def read(self, index: int) -> Fields:
        entry, path = self._entries[index], self._sound(index)
        suffix = path.suffix[1:].lower()
        if suffix not in SOUNDS:
            raise SampleError(
                f"{path} is no sound that hotlap reads.", f"convert it to one of {', '.join(SOUNDS)}"
            )
        content = read_intact(path)
        values = {name: value for name, value in entry.items() if name not in ("audio_filepath", "shard_id")}
        if values.get("offset"):
            content = cut(memoryview(content), values.pop("offset"), values["duration"])
        if "duration" not in values:
            values["duration"] = round(duration_of(memoryview(content)), 6)
        return {**values, suffix: content}

    def paths(self, index: int) -> Sequence[Path]:
        return [self._sound(index)]

    def fingerprint(self) -> str:
        return hashlib.sha256(
            f"{self._text}{super().fingerprint()}".encode("utf-8", "surrogateescape")
        ).hexdigest()

    def _sound(self, index: int) -> Path:
        return self._path.parent / str(self._entries[index]["audio_filepath"])


def _manifest_of(path: Path) -> Path | None:
    if path.is_file() and path.suffix in (".json", ".jsonl"):
        return path if _speaks_of_sound(path) else None
    if not path.is_dir():
        return None
    found = [each for each in sorted(path.glob("*.json*")) if _speaks_of_sound(each)]
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise SampleError(f"{path} holds several manifests: {names}.", "name the one to pack")
    return found[0] if found else None


def _speaks_of_sound(path: Path) -> bool:
    with path.open("rb") as file:
        return b'"audio_filepath"' in file.readline(2**20)


def _entry(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        entry: dict[str, Any] = json.loads(line)
        if isinstance(entry["audio_filepath"], str):
            return entry
    except (ValueError, KeyError, TypeError):
        pass
    raise SampleError(
        f"line {number} of {path} is no entry with an audio_filepath: {line[:60]}", "mend the manifest"
    )
