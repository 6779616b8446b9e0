"""The tables of a nuScenes tree, read without the devkit and checked: every token they name must be there."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal

from hotlap_recipes.lss_swin import BadInputError
from hotlap_recipes.lss_swin.splits import MINI

Row = dict[str, Any]
Split = Literal["train", "val"]

LINKS: dict[str, dict[str, str]] = {
    "scene": {"log_token": "log"},
    "log": {},
    "sample": {"scene_token": "scene"},
    "sample_data": {
        "sample_token": "sample",
        "ego_pose_token": "ego_pose",
        "calibrated_sensor_token": "calibrated_sensor",
    },
    "ego_pose": {},
    "calibrated_sensor": {"sensor_token": "sensor"},
    "sensor": {},
    "sample_annotation": {"sample_token": "sample", "instance_token": "instance"},
    "instance": {"category_token": "category"},
    "category": {},
}
"""The tables that are read, and which other table a token of a row belongs to."""


class Tables:
    """All rows by table and token."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.folder = _version_folder(self.root)
        self._rows = {name: _rows_by_token(self.folder / f"{name}.json") for name in LINKS}
        for name in LINKS:
            self._check_links(name)

    def rows(self, table: str) -> Collection[Row]:
        return self._rows[table].values()

    def get(self, table: str, token: str) -> Row:
        return self._rows[table][token]

    def value(self, table: str, row: Row, key: str) -> Any:
        """A value that must be there."""
        if key not in row:
            path = self.folder / f"{table}.json"
            raise BadInputError(f"{path}: row {row['token']} has no {key!r}.", "restore the table.")
        return row[key]

    def scenes_of(self, split: Split) -> list[Row]:
        """The scenes of a split that the tree holds, in the order of the split."""
        by_name = {self.value("scene", row, "name"): row for row in self.rows("scene")}
        found = [by_name[name] for name in self._names_of(split) if name in by_name]
        if not found:
            there = ", ".join(sorted(by_name)) or "none"
            raise BadInputError(
                f"{self.folder} has no scene of the split {split!r}; its scenes: {there}.",
                "add scenes (make_nuscenes --scenes), or list them in splits.json beside the tables.",
            )
        return found

    def _names_of(self, split: Split) -> Sequence[str]:
        """splits.json beside the tables is what the devkit calls a custom split."""
        custom = self.folder / "splits.json"
        if custom.exists():
            splits = _parsed(custom)
            if not isinstance(splits, dict) or split not in splits:
                raise BadInputError(f"{custom} has no {split!r}.", 'write {"train": [...], "val": [...]}.')
            names: list[str] = splits[split]
            return names
        if not self.folder.name.endswith("mini"):
            raise BadInputError(
                f"the split of {self.folder} is not known, only that of v1.0-mini.",
                f'list the names of the scenes in {custom}: {{"train": [...], "val": [...]}}.',
            )
        return MINI[split]

    def _check_links(self, table: str) -> None:
        for key, other in LINKS[table].items():
            known = self._rows[other]
            for row in self.rows(table):
                if self.value(table, row, key) not in known:
                    raise BadInputError(
                        f"{self.folder / f'{table}.json'}: row {row['token']} has the {key} {row[key]!r}, "
                        f"which {other}.json does not hold.",
                        "restore both tables from the same download.",
                    )


def _version_folder(root: Path) -> Path:
    found = sorted(path.parent for path in root.glob("v1.0-*/sample.json"))
    if not found:
        raise BadInputError(
            f"{root} holds no nuScenes tables (v1.0-mini/sample.json).",
            f"make some: python -m hotlap_recipes.lss_swin.make_nuscenes --out {root}",
        )
    if len(found) > 1:
        names = ", ".join(folder.name for folder in found)
        raise BadInputError(
            f"{root} holds several versions: {names}.", "keep one of them in a root of its own."
        )
    return found[0]


def _rows_by_token(path: Path) -> dict[str, Row]:
    rows = _parsed(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "token" in row for row in rows):
        raise BadInputError(f"{path} is no list of rows that have a token.", "restore the table.")
    return {row["token"]: row for row in rows}


def _parsed(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path} cannot be read: {error}.", "restore the table.") from None
