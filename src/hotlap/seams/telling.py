"""What became of a plan in short lines: the same words while the script runs and in the summary after it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from hotlap.ports.knob import Numerics
from hotlap.seams.record import Fitted, Record, StepDown, pace

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
        text, _WIDTH, initial_indent=PREFIX, subsequent_indent=f"{PREFIX}  ", break_on_hyphens=False
    )


def _ids(fitted: Iterable[Fitted]) -> list[str]:
    return list(dict.fromkeys(each.knob for each in fitted))


def _acting(key: str, fitted: Iterable[Fitted]) -> str:
    acting = [each for each in fitted if each.knob == key and each.acts]
    if not acting:
        return ""
    numerics = max((each.numerics for each in acting), key=list(Numerics).index)
    mark = "" if numerics is Numerics.BITWISE else f" ({numerics})"
    return f"applied {key}={shown(acting[-1].setting)}{_where(acting)}{mark}"


def _refused(alike: Sequence[Fitted]) -> str:
    first = alike[0]
    return f"{first.knob}={shown(first.setting)} cannot act{_where(alike)}: {first.reason}"


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
    applied = [f"{each.knob}={shown(each.setting)}" for each in first.fitted if each.acts]
    what = ", ".join(dict.fromkeys(applied)) or "no setting"
    replaced = f", {_times(len(downs), 'step')} down" if downs else ""
    again = f", {starts} starts" if starts > 1 else ""
    rate = pace(first)
    speed = f" at {rate:.3g} a second" if rate else ""
    return wrapped(f"{_times(first.steps, 'step')}{speed}{again} with {what}{replaced}. The run is in {run}")


def _times(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
