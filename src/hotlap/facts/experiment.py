"""What was tried on the running job: one change at a time, in blocks of steps in turn with the original script."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from hotlap.facts import codec, private
from hotlap.facts.diagnosis import Interval

ALL_DECIDED = "all are decided"  # why no more were made, where nothing was left to try
LEAST_GAIN = 0.03  # a change that brings less is not worth a setting
FREE_INPUT = "free-input"
"""Stands in the place of a knob: steps on replayed batches, the most that any change of the input can bring."""


class ExperimentState(StrEnum):
    """What an experiment has shown. `faster` and `no-gain` are decided by the interval, `undecided` is not."""

    FASTER = "faster"
    NO_GAIN = "no-gain"
    UNDECIDED = "undecided"
    REFUSED = "refused"
    NOT_TRIED = "not-tried"


@dataclass(frozen=True)
class Experiment:
    """One change. `gain` is the throughput ratio minus one, over the blocks of the original script beside it.

    `beside` are settings that were switched together with it. `reason` says why it was refused or not tried, in one
    clause. `build_s` is what the first block took longer than the others, as for a compiler. `numerics` is the class
    that the change has on this job.
    """

    knob: str
    setting: str
    state: ExperimentState
    gain: float | None = None
    interval: Interval | None = None
    numerics: str = ""
    reason: str = ""
    blocks: int = 0
    beside: Mapping[str, Any] = field(default_factory=dict)
    build_s: float | None = None

    @property
    def saved(self) -> float:
        """The measured gain as a share of the step that it saves; 0 where nothing was gained."""
        return 1.0 - 1.0 / (1.0 + self.gain) if self.gain is not None and self.gain > 0 else 0.0


@dataclass(frozen=True)
class Experiments:
    """All of a run, the largest gain first; `ended` says in one clause why no more were made."""

    tried: tuple[Experiment, ...] = ()
    seconds: float = 0.0
    ended: str = ""

    def of(self, *knobs: str) -> tuple[Experiment, ...]:
        """Those of these knobs."""
        return tuple(each for each in self.tried if each.knob in knobs)

    @property
    def measured(self) -> tuple[Experiment, ...]:
        """Changes that took their turns; free input is a bound and no change."""
        return tuple(each for each in self.tried if each.gain is not None and each.knob != FREE_INPUT)

    @property
    def faster(self) -> tuple[Experiment, ...]:
        """Changes that are worth a setting."""
        return tuple(each for each in self.measured if each.state is ExperimentState.FASTER)

    @property
    def free_input(self) -> Experiment | None:
        """The most that any change of the input can bring; None where it was not measured."""
        return next((each for each in self.tried if each.knob == FREE_INPUT and each.gain is not None), None)


# Experiments on a running job: which variants take turns in the next blocks of steps, and what each block has shown.
#
# The parent writes rounds, the training process answers with blocks. One file each, numbered, so that nothing is read
# before it is whole.


READY = "experiments.ready"  # behind a process's number: its window is measured, and it waits for rounds
_FAILED = "experiments.failed"
_OWN = str(Path(__file__).resolve().parents[1])
_BLOCKS = "experiments.jsonl"
HELD = "experiments.log"  # what the script prints from there on


@dataclass(frozen=True)
class Round:
    """`variants[0]` is the job as it runs; `order` names them by position, one block each.

    A block has `steps` measured steps, fewer where they take longer than `longest_s`. It begins when `begin` optimizer
    steps are made, so that all ranks switch after the same one. Variants in `done` take no more turns. After the `last`
    round the script is ended.
    """

    variants: tuple[Mapping[str, Any], ...] = ()
    order: tuple[int, ...] = ()
    steps: int = 8
    longest_s: float = 0.0
    begin: int = 0
    done: tuple[Mapping[str, Any], ...] = ()
    last: bool = False


@dataclass(frozen=True)
class StepBlock:
    """Measured steps of one variant: nanoseconds, samples and tokens of each; -1 where they were not counted.

    `refused` says why the variant could not act. `numerics` is the class of each of its settings on this job.
    `settling_ns` is what switching and the first steps took, which are not measured. `start_ns` is what starting the
    loader's workers took, up to their first batch, where the script would start them in each epoch.
    """

    round: int
    variant: int
    walls: tuple[int, ...] = ()
    samples: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    refused: str = ""
    numerics: Mapping[str, str] = field(default_factory=dict)
    settling_ns: int = 0
    start_ns: int = 0


def write_round(folder: Path, number: int, asked: Round) -> None:
    codec.write_text(_round_file(folder, number), json.dumps(codec.to_plain(asked)))


def read_round(folder: Path, number: int) -> Round | None:
    """None where nobody has asked for it yet."""
    path = _round_file(folder, number)
    if not path.exists():
        return None
    found: Round = codec.from_plain(Round, codec.parse_json(path.read_bytes()))
    return found


def write_block(folder: Path, pid: int, block: StepBlock) -> None:
    with open(folder / f"{pid}.{_BLOCKS}", "a", encoding="utf-8", opener=private.opener) as file:
        file.write(json.dumps(codec.to_plain(block)) + "\n")


def read_blocks(folder: Path, pid: int) -> tuple[StepBlock, ...]:
    """Of one process; a torn last line is not there yet."""
    path = folder / f"{pid}.{_BLOCKS}"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    whole = text[: text.rfind("\n") + 1].splitlines()
    return tuple(codec.from_plain(StepBlock, codec.parse_json(line)) for line in whole)


def write_failure(folder: Path, pid: int, error: BaseException) -> None:
    """The script has ended with this error while experiments ran; its own output is held back then."""
    frames = traceback.extract_tb(error.__traceback__)
    last = [each for each in frames if not each.filename.startswith(_OWN)][-1:]
    place = f" ({last[0].filename}:{last[0].lineno})" if last else ""
    words = str(error)
    if isinstance(error, FileNotFoundError) and error.filename:  # as where it loads what it has saved
        words = f"{error.filename} is not there: the script's files are not written while experiments run"
    codec.write_text(folder / f"{pid}.{_FAILED}", f"{type(error).__name__}: {words}{place}")


def read_failure(folder: Path) -> str:
    """Empty where no process of the job has failed."""
    return next((path.read_text(encoding="utf-8") for path in sorted(folder.glob(f"*.{_FAILED}"))), "")


def _round_file(folder: Path, number: int) -> Path:
    return folder / f"round.{number}.json"
