"""What the monitors of this process say, in one small file that a look from outside finds: `<pid>.watch.json`.

It is written at most once a second, whole or not at all. There is a journal only in a process that runs under hotlap.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hotlap.launch.environment import FOLDER
from hotlap.watch.budget import Budget
from hotlap.watch.word import Word

ENDING = ".watch.json"
_WRITE_EVERY_S = 1.0


class Journal:
    """The latest word of each monitor."""

    def __init__(self, folder: Path) -> None:
        self.steps: int | None = None
        self.notes: Mapping[str, Any] = {}
        self._folder = folder
        self._told: dict[str, Word] = {}
        self._budgets: dict[str, Budget] = {}
        self._written = -math.inf

    def tell(self, monitor: str, word: Word) -> None:
        """From now on, this is what the monitor says."""
        self._told[monitor] = word

    def budget(self, owner: str, budget: Budget) -> None:
        self._budgets[owner] = budget

    def write_if_due(self) -> None:
        if time.monotonic() - self._written >= _WRITE_EVERY_S:
            self.write()

    def write(self) -> None:
        self._written = time.monotonic()
        budgets = {id(each): each for each in self._budgets.values()}.values()
        body = {
            "schema": 1,
            "pid": os.getpid(),
            "written": time.time(),
            "cost": {
                "share": sum(each.share for each in budgets),
                "spent": sum(each.spent_share or 0.0 for each in budgets),
            },
            "steps": self.steps,
            "notes": dict(self.notes),
            "monitors": {name: asdict(word) for name, word in self._told.items()},
        }
        path = self._folder / f"{os.getpid()}{ENDING}"
        draft = self._folder / f".{path.name}"
        with contextlib.suppress(OSError, ValueError):  # the run is over and its folder gone, or a full disk
            draft.write_text(json.dumps(body, default=str), encoding="utf-8")
            draft.replace(path)


_journals: dict[tuple[str, int], Journal] = {}


def process_journal() -> Journal | None:
    """The one of this process; None where it does not run under hotlap."""
    folder = os.environ.get(FOLDER)
    if not folder or not Path(folder).is_dir():
        return None
    return _journals.setdefault((folder, os.getpid()), Journal(Path(folder)))


def run_folder() -> Path | None:
    """Of the run that this process belongs to."""
    folder = os.environ.get(FOLDER)
    return Path(folder).parent if folder and Path(folder).is_dir() else None
