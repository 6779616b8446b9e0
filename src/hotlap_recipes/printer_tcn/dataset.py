"""Windows of recorded prints, for a DataLoader.

By default each item is cut from the raw recording and then put through the fitted scalers. `pre_normalize`
puts the recordings through them once, at set-up. `cache_data` also keeps the result as tensors, of which the
items are views. The items are equal in all three.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.io import loadmat
from sklearn.preprocessing import StandardScaler
from torch.utils.data import Dataset

from hotlap_recipes.printer_tcn import ERRORS, INPUTS, STATES, STRIDE, WINDOW
from hotlap_recipes.printer_tcn.physics import Belt

Table = NDArray[np.float64]
Item = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class BadInputError(Exception):
    """What the user gave cannot be trained on: what is wrong, with the value, and one remedy."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}\n  -> {remedy}")


@dataclass(frozen=True)
class Print:
    """One recording: (steps, 12) inputs, (steps, 5) hidden states, (steps, 2) tracking errors in mm."""

    path: Path
    inputs: Table
    states: Table
    errors: Table
    belt: Belt


class Scalers(NamedTuple):
    inputs: StandardScaler
    states: StandardScaler
    errors: StandardScaler


def load_prints(patterns: Sequence[str]) -> list[Print]:
    """Every .mat file in the folders that match, all recorded on one machine."""
    # A set, because a folder that matches two patterns would put its windows on both sides of the split.
    folders = sorted({folder.resolve() for pattern in patterns for folder in matching_folders(pattern)})
    prints = [load_print(path) for folder in folders for path in sorted(folder.glob("*.mat"))]
    if not prints:
        asked = " ".join(patterns)
        what = f"no .mat file in {len(folders)} folders that match" if folders else "no folder matches"
        raise BadInputError(
            f"{what} --data_dir {asked!r}, seen from {Path.cwd()}.",
            "make some prints: python -m hotlap_recipes.printer_tcn.make_data --out .",
        )
    for print_ in prints:
        if print_.belt != prints[0].belt:
            raise BadInputError(
                f"{print_.path} was recorded with {print_.belt}, {prints[0].path} with {prints[0].belt}.",
                "give --data_dir the prints of one machine: the physics loss has one set of parameters.",
            )
    return prints


def matching_folders(pattern: str) -> list[Path]:
    # Not Path.glob: it refuses ".", absolute patterns and "**x".
    found = (Path(match) for match in glob.glob(str(Path(pattern).expanduser())))  # noqa: PTH207
    return [folder for folder in found if folder.is_dir()]


def load_print(path: Path) -> Print:
    try:
        content = loadmat(path, simplify_cells=True)
    except Exception as error:  # scipy raises many kinds on a file that is no .mat file
        raise BadInputError(f"{path} cannot be read: {error}.", "write it with scipy.io.savemat.") from error
    data, belt = (struct_of(content, name, path) for name in ("simulation_data", "belt"))
    table = table_of(data, (*INPUTS, *STATES, *ERRORS), path)
    inputs, states, errors = np.split(table, np.cumsum([len(INPUTS), len(STATES)]), axis=1)
    parameters = {name: float(require(belt, name, path)) for name in Belt.__annotations__}
    return Print(path, inputs, states, errors, Belt(**parameters))


def struct_of(content: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    found = require(content, name, path)
    if not isinstance(found, dict):
        raise BadInputError(f"{name!r} in {path} is no struct.", "write it as make_data.py does.")
    return found


def require(content: dict[str, Any], name: str, path: Path) -> Any:
    if name not in content:
        there = ", ".join(key for key in content if not key.startswith("__")) or "nothing"
        raise BadInputError(f"{path} has no {name!r}, it holds: {there}.", "write it as make_data.py does.")
    return content[name]


def table_of(data: dict[str, Any], columns: Sequence[str], path: Path) -> Table:
    signals = {column: np.atleast_1d(require(data, column, path)) for column in columns}
    steps = len(signals[columns[0]])
    for column, signal in signals.items():
        if signal.shape != (steps,):
            raise BadInputError(
                f"{path} has {steps} steps of {columns[0]}, but {column} has the shape {signal.shape}.",
                "record every signal at the same steps.",
            )
    if steps < WINDOW:
        raise BadInputError(
            f"{path} has {steps} steps, and a window needs {WINDOW}.",
            "record longer (make_data --steps), or move the file out of the folder.",
        )
    return np.stack(list(signals.values()), axis=1).astype(np.float64)


def split_prints(prints: Sequence[Print], seed: int, share: float = 0.2) -> tuple[list[Print], list[Print]]:
    """Training and validation prints. Whole prints, because windows of one print overlap by 97 %."""
    if len(prints) < 2:
        raise BadInputError(
            f"{prints[0].path} is the only print, and validation needs one of its own.",
            "widen --data_dir to more prints.",
        )
    held_out = max(1, round(share * len(prints)))
    order = np.random.default_rng(seed).permutation(len(prints))
    return [prints[i] for i in order[held_out:]], [prints[i] for i in order[:held_out]]


def fit_scalers(prints: Sequence[Print]) -> Scalers:
    return Scalers(
        StandardScaler().fit(np.concatenate([print_.inputs for print_ in prints])),
        StandardScaler().fit(np.concatenate([print_.states for print_ in prints])),
        StandardScaler().fit(np.concatenate([print_.errors for print_ in prints])),
    )


class PrintWindows(Dataset[Item]):
    """Item i is one window's normalised (inputs, states, errors), each a float32 tensor (WINDOW, columns)."""

    def __init__(
        self, prints: Sequence[Print], scalers: Scalers, pre_normalize: bool = False, cache_data: bool = False
    ) -> None:
        self.scalers = scalers
        self.pre_normalize = pre_normalize
        self.cache_data = cache_data
        self.tables: list[Any] = [(print_.inputs, print_.states, print_.errors) for print_ in prints]
        if pre_normalize or cache_data:
            self.tables = [self.normalize(tables) for tables in self.tables]
        if cache_data:
            self.tables = [as_tensors(tables) for tables in self.tables]
        self.index = [
            (number, start)
            for number, print_ in enumerate(prints)
            for start in range(0, len(print_.inputs) - WINDOW + 1, STRIDE)
        ]

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, i: int) -> Item:
        number, start = self.index[i]
        window = [table[start : start + WINDOW] for table in self.tables[number]]
        if self.cache_data:
            return window[0], window[1], window[2]
        if not self.pre_normalize:
            window = self.normalize(window)
        return as_tensors(window)

    def normalize(self, tables: Sequence[Table]) -> list[Table]:
        return [scaler.transform(table) for scaler, table in zip(self.scalers, tables, strict=True)]


def as_tensors(tables: Sequence[Table]) -> Item:
    inputs, states, errors = (torch.tensor(table, dtype=torch.float32) for table in tables)
    return inputs, states, errors
