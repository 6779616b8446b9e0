"""The append-only record of trials: a line each, so that a kill loses at most the trial under way."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hotlap.errors import FactError
from hotlap.facts import codec
from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Status, Trial

NAME = "ledger.jsonl"


class Ledger:
    """The trials of one job in one folder. A ledger of another job is refused, never mixed in."""

    def __init__(self, folder: Path, job: Job) -> None:
        self._path = folder / NAME
        self._key = fingerprint(job)
        self.trials: list[Trial] = list(self._read())

    @property
    def next_number(self) -> int:
        return max((trial.number for trial in self.trials), default=0) + 1

    def add(self, trial: Trial) -> None:
        """Written and flushed to the disk before it counts."""
        body = {"schema": codec.SCHEMA, "job": self._key, **codec.to_plain(trial)}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(body, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.trials.append(trial)

    def rates(self, plan: Plan) -> list[float]:
        """Throughput of every finished trial of these settings."""
        return [
            trial.figures.throughput
            for trial in self.trials
            if trial.status is Status.DONE and trial.figures and same_settings(trial.plan, plan)
        ]

    def groups(self) -> list[list[float]]:
        """Rates by settings: what scatters within a group is chance."""
        plans = {key_of(trial.plan.settings): trial.plan for trial in self.trials}
        return [self.rates(plan) for plan in plans.values()]

    def last(self, plan: Plan) -> Trial | None:
        return next((trial for trial in reversed(self.trials) if same_settings(trial.plan, plan)), None)

    def _read(self) -> list[Trial]:
        if not self._path.is_file():
            return []
        lines = self._path.read_text(encoding="utf-8").splitlines()
        found = []
        for number, line in enumerate(lines):
            try:
                body = json.loads(line)
            except ValueError:
                if number == len(lines) - 1:
                    continue  # the line that a kill has torn
                raise FactError(
                    f"line {number + 1} of {self._path} is torn.", "start a new one: --out DIR"
                ) from None
            if body.get("job") != self._key:
                raise FactError(
                    f"{self._path} holds the trials of another job.", "start a new one: --out DIR"
                )
            found.append(codec.from_plain(Trial, body))
        return found


def fingerprint(job: Job) -> str:
    """Of the command and of the script as it is now: trials of an edited script are of another job."""
    hashed = hashlib.sha256(repr((job.argv, job.cwd)).encode())
    for word in job.argv:
        path = Path(job.cwd, word)
        if path.suffix == ".py" and path.is_file():
            hashed.update(path.read_bytes())
    return hashed.hexdigest()[:16]


def same_settings(one: Plan, other: Plan) -> bool:
    return key_of(one.settings) == key_of(other.settings)


def key_of(settings: Mapping[str, Any]) -> str:
    return json.dumps(dict(settings), sort_keys=True, default=str)
