"""Subjects in Parquet, read as such scripts read them: with pandas, one by one, when they are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch.utils.data import Dataset

from hotlap_recipes.seqset_vae import BadInputError

Item = dict[str, Any]


def read_table(data_dir: Path, split: str) -> pd.DataFrame:
    """What `subjects.parquet` says of the subjects of a split, by their number."""
    path = data_dir / "subjects.parquet"
    if not path.is_file():
        raise BadInputError(
            f"there is no {path}.",
            f"make subjects: python -m hotlap_recipes.seqset_vae.make_data --out {data_dir}",
        )
    table = pd.read_parquet(path)
    table = table[table["split"] == split].set_index("subject")
    if not len(table):
        raise BadInputError(f"{path} has no subject for '{split}'.", "write it as make_data.py does.")
    return table


class ParquetSubjects(Dataset[Item]):
    """Item i is a subject: the minute and the number of events of each set, all events end to end, the outcome.

    The folder holds a file for each subject (`train/subject_00000.parquet`) or one for all (`train.parquet`).
    """

    def __init__(self, data_dir: str, split: str) -> None:
        self.table = read_table(Path(data_dir), split)
        self.folder, self.flat = Path(data_dir) / split, Path(data_dir) / f"{split}.parquet"
        if not self.folder.is_dir() and not self.flat.is_file():
            raise BadInputError(
                f"there is neither {self.folder}/ nor {self.flat}.", "write the events as make_data.py does."
            )

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> Item:
        number = int(self.table.index[index])
        events = self._read(number)
        sizes = events.groupby("set", sort=True).size().to_numpy()
        return {
            "minutes": events.groupby("set", sort=True)["minute"].first().to_numpy(np.float32, copy=True),
            "sizes": sizes.astype(np.int64),
            "events": np.stack(events["embedding"].to_list()),
            "outcome": np.float32(self.table["outcome"].iloc[index]),
        }

    def _read(self, number: int) -> pd.DataFrame:
        if self.folder.is_dir():
            return pd.read_parquet(self.folder / f"subject_{number:05d}.parquet")
        return pd.read_parquet(self.flat, filters=[("subject", "==", number)])
