"""NumPy and MATLAB arrays: a file whose first axis counts the samples, or a folder with a file for each sample."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hotlap.data.pack.source import (
    Arguments,
    SampleSource,
    files_fingerprint,
    no_arguments,
    stat_of,
    unique_keys,
)
from hotlap.data.samples import Fields, SampleError

_SUFFIXES = (".npy", ".npz", ".mat")


class Arrays(SampleSource):
    """The arrays of a file are the fields, by their names; that of a .npy file is called `array`."""

    @classmethod
    def recognises(cls, name: str) -> bool:
        return bool(_files(Path(name)))

    def __init__(self, name: str, arguments: Arguments) -> None:
        no_arguments(name, arguments)
        self._root = Path(name)
        self._paths = _files(self._root)
        self._table = load_arrays(self._root, mapped=True) if self._root.is_file() else None
        if self._table is not None and len({each.shape[:1] for each in self._table.values()}) != 1:
            shapes = ", ".join(f"{field} {each.shape}" for field, each in self._table.items())
            what = f"the arrays of {name} do not count the same samples along their first axis: {shapes}."
            raise SampleError(what, "save arrays of equal length, or a file for each sample")

    @cached_property
    def keys(self) -> Sequence[str]:
        if self._table is None:
            return unique_keys(str(path.relative_to(self._root).with_suffix("")) for path in self._paths)
        rows = next(iter(self._table.values())).shape[:1]
        return [f"{index:09}" for index in range(rows[0] if rows else 0)]

    def read(self, index: int) -> Fields:
        if self._table is None:
            return {name: np.asarray(each) for name, each in load_arrays(self._paths[index]).items()}
        return {name: np.array(each[index]) for name, each in self._table.items()}

    def where(self, index: int) -> str:
        return str(self._paths[index]) if self._table is None else f"row {index} of {self._root}"

    def sizes(self) -> Sequence[int] | None:
        return None if self._table is not None else [stat_of(path).st_size for path in self._paths]

    def fingerprint(self) -> str:
        return files_fingerprint(self._paths)


def load_arrays(path: Path, mapped: bool = False) -> dict[str, Any]:
    """The arrays of a file by name."""
    try:
        if path.suffix == ".npy":
            return {"array": np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)}
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
        return _matlab(path)
    except (ValueError, OSError, EOFError, KeyError) as error:
        raise SampleError(f"{path} cannot be read: {error}.", "restore the file or leave it out") from None


def _matlab(path: Path) -> dict[str, Any]:
    try:
        from scipy.io import loadmat
    except ImportError:
        raise SampleError(f"{path} needs scipy to be read.", "pip install scipy") from None
    try:
        content = loadmat(path)
    except NotImplementedError:
        return _matlab73(path)
    return {name: value for name, value in content.items() if not name.startswith("__")}


def _matlab73(path: Path) -> dict[str, Any]:
    """Since version 7.3 these are HDF5 files, with the axes the other way round."""
    try:
        import h5py
    except ImportError:
        raise SampleError(f"{path} is of MATLAB 7.3 and needs h5py to be read.", "pip install h5py") from None
    with h5py.File(path) as file:
        return {name: np.asarray(file[name]).T for name in file if not name.startswith("#")}


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix in _SUFFIXES else []
    return sorted(each for each in path.rglob("*") if each.suffix in _SUFFIXES) if path.is_dir() else []
