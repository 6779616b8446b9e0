"""What became of a plan in one process: written by the training process, read by the parent."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hotlap.errors import FactError, visible
from hotlap.facts import codec
from hotlap.facts.rewrite import shown_setting
from hotlap.ports.knob import Knob, Numerics

_ENDING = ".fitted.json"


@dataclass(frozen=True)
class Fitted:
    """What became of a setting: `place` says where it acts, `reason` why it does not, or is no longer bit-equal."""

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


# What became of a plan in short lines: the same words while the script runs and in the summary after it.


_WIDTH = 100
_MOST_PLACES = 2
PREFIX = "hotlap: "


def told(news: Sequence[Fitted | StepDown]) -> list[str]:
    """What acts first, then what cannot, then what was replaced."""
    fitted = [each for each in news if isinstance(each, Fitted)]
    acts = [line for key in _ids(fitted) if (line := _acting(key, fitted))]
    refused = dict.fromkeys((each.knob, each.reason) for each in fitted if not each.acts)
    cannot = [_refused([each for each in fitted if (each.knob, each.reason) == key]) for key in refused]
    downs = [_stepped_down(each) for each in news if isinstance(each, StepDown)]
    return [line for text in (*acts, *cannot, *downs) for line in wrapped(text)]


def shown(setting: Any) -> str:
    """As plan.yaml and `--set` write it."""
    return str(setting).lower() if isinstance(setting, bool) else str(setting)


def wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        visible(text), _WIDTH, initial_indent=PREFIX, subsequent_indent=f"{PREFIX}  ", break_on_hyphens=False
    )


def _ids(fitted: Iterable[Fitted]) -> list[str]:
    return list(dict.fromkeys(each.knob for each in fitted))


def _acting(key: str, fitted: Iterable[Fitted]) -> str:
    acting = [each for each in fitted if each.knob == key and each.acts]
    if not acting:
        return ""
    numerics = max((each.numerics for each in acting), key=list(Numerics).index)
    why = next((f": {each.reason}" for each in acting if each.reason), "")
    mark = "" if numerics is Numerics.BITWISE else f" ({numerics}{why})"
    return f"applied {shown_setting(key, shown(acting[-1].setting))}{_where(acting)}{mark}"


def _refused(alike: Sequence[Fitted]) -> str:
    first = alike[0]
    return f"{shown_setting(first.knob, shown(first.setting))} cannot act{_where(alike)}: {first.reason}"


def _where(fitted: Iterable[Fitted]) -> str:
    places = list(dict.fromkeys(each.place for each in fitted if each.place))
    more = f" and {len(places) - _MOST_PLACES} more" if len(places) > _MOST_PLACES else ""
    return f" at {', '.join(places[:_MOST_PLACES])}{more}" if places else ""


def _stepped_down(each: StepDown) -> str:
    when = "" if each.step is None else f" at step {each.step}"
    lost = "" if not each.lost else f"; {each.lost} steps were lost"
    return f"{each.knob} went from {shown(each.before)} to {shown(each.after)}{when}: {each.reason}{lost}"


def summary(records: Sequence[Record], downs: Sequence[StepDown], starts: int, run: str) -> list[str]:
    """After the script: what was applied and replaced, and how far it came."""
    if not records or not records[0].steps:
        fitted = records[0].fitted if records else ()
        return [*told([*fitted, *downs]), *wrapped(f"no optimizer step was seen. The run is in {run}")]
    first = records[0]
    applied = [shown_setting(each.knob, shown(each.setting)) for each in first.fitted if each.acts]
    what = ", ".join(dict.fromkeys(applied)) or "no setting"
    replaced = f", {_times(len(downs), 'step')} down" if downs else ""
    again = f", {starts} starts" if starts > 1 else ""
    rate = pace(first)
    speed = f" at {rate:.3g} a second" if rate else ""
    return wrapped(f"{_times(first.steps, 'step')}{speed}{again} with {what}{replaced}. The run is in {run}")


def _times(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
