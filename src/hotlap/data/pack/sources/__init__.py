"""The kinds of source, the most particular first: the first that recognises what the user named is taken."""

from __future__ import annotations

from pathlib import Path

from hotlap.data.pack.source import Arguments, SampleSource
from hotlap.data.pack.sources.arrays import Arrays
from hotlap.data.pack.sources.dataset import DatasetSource
from hotlap.data.pack.sources.manifest import Manifest
from hotlap.data.pack.sources.nuscenes import NuScenes
from hotlap.data.pack.sources.parquet import ParquetFiles
from hotlap.data.pack.sources.pictures import Pictures
from hotlap.errors import UsageError

KINDS: tuple[type[SampleSource], ...] = (NuScenes, Manifest, ParquetFiles, Arrays, Pictures, DatasetSource)


def open_source(name: str, arguments: Arguments) -> SampleSource:
    """The source that a name stands for."""
    for kind in KINDS:
        if kind.recognises(name):
            source = kind(name, arguments)
            if not len(source.keys):
                raise UsageError(f"{name} holds no samples.", "check the path and the arguments")
            return source
    if not Path(name).exists():
        raise UsageError(f"there is no '{name}'.", "name a file, a folder, or a dataset: mypkg.data:TrainSet")
    raise UsageError(
        f"{name} holds nothing that hotlap knows how to pack.",
        "it packs folders with a manifest, nuScenes trees, Parquet, .npy .npz .mat, pictures, and mypkg.data:TrainSet",
    )


def natural_format(name: str, changed: bool) -> str:
    """The format that suits a source: arrays flat, sounds as NeMo has them, other files in tars."""
    kind = next((each for each in KINDS if each.recognises(name)), None)
    if changed or kind in (Arrays, DatasetSource, ParquetFiles):
        return "flat"
    return "nemo" if kind is Manifest else "tar"
