"""What became of a plan in one process: written by the training process, read by the parent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hotlap.errors import FactError
from hotlap.facts import codec
from hotlap.ports.knob import Knob, Numerics

_ENDING = ".fitted.json"


@dataclass(frozen=True)
class Fitted:
    """What became of a setting: `place` says where it acts, `reason` why it does not."""

    knob: str
    setting: Any
    acts: bool
    place: str = ""
    reason: str = ""
    numerics: Numerics = Numerics.BITWISE


@dataclass(frozen=True)
class StepDown:
    """A setting that did not work on this job and was replaced: at which step, and how many steps were lost."""

    knob: str
    before: Any
    after: Any
    reason: str
    step: int | None = None
    lost: int | None = None


@dataclass(frozen=True)
class Record:
    """One process. Times are seconds of the steps seen, from the end of the first to the end of the last."""

    pid: int
    rank: int
    fitted: tuple[Fitted, ...] = ()
    step_downs: tuple[StepDown, ...] = ()
    steps: int = 0
    seconds: float = 0.0
    faults: tuple[str, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)  # of the seams, see memory_ladder


def answer(knob: Knob, fitted: Sequence[Fitted]) -> dict[str, Any]:
    """One word on a knob that was asked at several places: it can act if it can act anywhere."""
    never = Fitted(knob.id, None, acts=False, reason="the script ended before it could be asked")
    best = next((each for each in fitted if each.acts), next(iter(fitted), never))
    places = list(dict.fromkeys(each.place for each in fitted if each.acts and each.place))
    return {
        "knob": knob.id,
        "acts": best.acts,
        "place": ", ".join(places) or f"the {knob.seam}",
        "reason": best.reason,
        "numerics": best.numerics.value,
        "setting": best.setting,
    }


def pace(record: Record) -> float | None:
    """Steps per second, from the end of the first; None where there were too few to tell."""
    return (record.steps - 1) / record.seconds if record.steps > 1 and record.seconds > 0 else None


def write_record(folder: Path, record: Record) -> None:
    codec.write_json(folder / f"{record.pid}{_ENDING}", record)


def read_records(folder: Path) -> tuple[Record, ...]:
    """The records of a job, one for each process."""
    return tuple(record for path in sorted(folder.glob(f"*{_ENDING}")) for record in _read(path))


def _read(path: Path) -> Iterable[Record]:
    try:
        yield codec.read_json(path, Record)
    except FactError:
        return  # its process wrote something else than it should: what the others say still counts
