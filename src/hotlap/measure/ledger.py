"""The append-only record of trials and of what was ruled on them: a line each, so that a kill loses at most a trial."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hotlap.errors import FactError
from hotlap.facts import codec, private
from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Figures, Goal, Status, Trial, worths
from hotlap.facts.verdict import Guarded, KnobVerdict
from hotlap.measure.runner import disturbed

NAME = "ledger.jsonl"
_REMEDY = "start a new one: --out DIR"


@dataclass(frozen=True)
class Ruled:
    """A verdict, the wish of the user that it was made for, and the settings that stood after it."""

    wish: str
    verdict: KnobVerdict
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answered:
    """What the guard has said of these settings."""

    settings: Mapping[str, Any]
    guard: Guarded


class Ledger:
    """The trials of one job in one folder. A ledger of another job is refused, never mixed in."""

    def __init__(self, folder: Path, job: Job) -> None:
        self._path = folder / NAME
        self._key = fingerprint(job)
        self.trials: list[Trial] = []
        self.ruled: list[Ruled] = []
        self.answered: list[Answered] = []
        self._read()

    @property
    def next_number(self) -> int:
        return max((trial.number for trial in self.trials), default=0) + 1

    def add(self, trial: Trial) -> None:
        """Written and flushed to the disk before it counts."""
        self._append(codec.to_plain(trial))
        self.trials.append(trial)

    def rule(self, ruled: Ruled) -> None:
        self._append({"ruled": codec.to_plain(ruled)})
        self.ruled.append(ruled)

    def answer(self, answered: Answered) -> None:
        self._append({"answered": codec.to_plain(answered)})
        self.answered.append(answered)

    def of(self, plan: Plan) -> list[Trial]:
        """Every finished trial of these settings; disturbed ones only where there are no others."""
        done = [trial for trial in self.trials if trial.status is Status.DONE and trial.figures]
        mine = [trial for trial in done if same_settings(trial.plan, plan)]
        return [trial for trial in mine if not disturbed(trial)] or mine

    def figures(self, plan: Plan) -> list[Figures]:
        """Of each finished trial of these settings."""
        return [trial.figures for trial in self.of(plan) if trial.figures]

    def rates(self, plan: Plan, goal: Goal = Goal.SPEED) -> list[float]:
        """What each of them was worth, in one count."""
        return worths(goal, self.figures(plan))[0]

    def groups(self, goal: Goal = Goal.SPEED) -> list[list[float]]:
        """Rates by settings: what scatters within a group is chance."""
        plans = {key_of(trial.plan.settings): trial.plan for trial in self.trials}
        return [self.rates(plan, goal) for plan in plans.values()]

    def compile_s(self, plan: Plan) -> float:
        """Of the first trial that compiled: later ones find its work in the cache."""
        return max((trial.figures.compile_s for trial in self.of(plan) if trial.figures), default=0.0)

    def _append(self, body: Mapping[str, Any]) -> None:
        line = json.dumps({"schema": codec.SCHEMA, "job": self._key, **body}, ensure_ascii=False)
        with open(self._path, "a", encoding="utf-8", opener=private.opener) as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> None:
        try:
            text = self._path.read_text(encoding="utf-8") if self._path.is_file() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise FactError(f"{self._path} cannot be read: {error}.", _REMEDY) from None
        lines = text.splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            # The line that a kill has torn: what is added next must not be glued to it.
            codec.write_text(self._path, "".join(lines[:-1]))
            lines.pop()
        for number, line in enumerate(lines, 1):
            self._read_line(number, line)

    def _read_line(self, number: int, line: str) -> None:
        try:
            body = codec.parse_json(line)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise FactError(f"line {number} of {self._path} is torn.", _REMEDY)
        if body.get("job") != self._key:
            raise FactError(f"{self._path} holds the trials of another job.", _REMEDY)
        codec.check_schema(body, self._path)
        if "ruled" in body:
            self.ruled.append(codec.from_plain(Ruled, body["ruled"]))
        elif "answered" in body:
            self.answered.append(codec.from_plain(Answered, body["answered"]))
        else:
            self.trials.append(codec.from_plain(Trial, body))


def fingerprint(job: Job) -> str:
    """Of the command and of the script as it is now: trials of an edited script are of another job.

    Secrets are left out: another token does not make another job, and a digest must not help to guess one.
    """
    hashed = hashlib.sha256(repr((job.stored().argv, job.cwd)).encode())
    for word in job.argv:
        path = Path(job.cwd, word)
        if path.suffix == ".py" and path.is_file():
            hashed.update(path.read_bytes())
    return hashed.hexdigest()[:16]


def same_settings(one: Plan, other: Plan) -> bool:
    return key_of(one.settings) == key_of(other.settings)


def key_of(settings: Mapping[str, Any]) -> str:
    return json.dumps(dict(settings), sort_keys=True, default=str)
