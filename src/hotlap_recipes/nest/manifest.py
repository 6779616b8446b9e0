"""NeMo manifests: a JSON object on each line. What cannot be used is counted by its reason, not silently dropped."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import soundfile

from hotlap_recipes.nest import BadInputError

SHOWN = 3  # examples of what is wrong: enough to find the others


@dataclass(frozen=True)
class Entry:
    """A piece of a sound: `path` is a file, or a name within a tar."""

    path: str
    offset: float
    duration: float
    shard: int | None = None


class Fault(NamedTuple):
    """Why a clip or a line cannot be used. `kind` is what faults are counted by. It travels with the batch."""

    where: str
    kind: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.kind}{f' ({self.detail})' if self.detail else ''}"


@dataclass
class Survey:
    """What manifests hold: clips to use, faults, and clips that the limits of duration leave out."""

    entries: list[Entry] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    too_short: int = 0
    too_long: int = 0

    @property
    def lines(self) -> int:
        return len(self.entries) + len(self.faults) + self.too_short + self.too_long

    def require_use(self, on_bad: str, most: float) -> None:
        """Raises where the config allows fewer faults than there are, or nothing is left."""
        require_few(self.faults, self.lines, on_bad, most)
        if not self.entries:
            remedy = f"widen the limits, or mend the manifest.{examples(self.faults)}"
            raise BadInputError(f"no clip is left of {self.lines}: {self.summary()}.", remedy)

    def summary(self) -> str:
        hours = sum(each.duration for each in self.entries) / 3600
        left_out = {"too short": self.too_short, "too long": self.too_long}
        counts = {kind: count for kind, count in left_out.items() if count} | counted(self.faults)
        reasons = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        return f"{len(self.entries)} clips, {hours:.2f} h" + (f"; left out: {reasons}" if reasons else "")


def counted(faults: Iterable[Fault]) -> dict[str, int]:
    found = Counter(fault.kind for fault in faults)
    return dict(sorted(found.items(), key=lambda each: (-each[1], each[0])))


def examples(faults: Sequence[Fault]) -> str:
    return "".join(f"\n     {fault}" for fault in faults[:SHOWN])


def require_few(faults: Sequence[Fault], clips: int, on_bad: str, most: float) -> None:
    if not faults:
        return
    reasons = ", ".join(f"{count} {kind}" for kind, count in counted(faults).items())
    if on_bad == "refuse":
        remedy = f"mend them, or leave such clips out with on_bad_clip=skip.{examples(faults)}"
        raise BadInputError(f"{len(faults)} of {clips} clips are bad: {reasons}.", remedy)
    if len(faults) > most * clips:
        remedy = f"mend them, or raise max_bad_share, now {most:g}.{examples(faults)}"
        raise BadInputError(f"{len(faults)} of {clips} clips are bad: {reasons}. That is too many.", remedy)


def paths_of(value: Any) -> list[str]:
    """NeMo takes one path, several with commas between, or lists of lists of them."""
    if value is None:
        return []
    if isinstance(value, str | Path):
        return [part for part in str(value).split(",") if part]
    return [path for part in value for path in paths_of(part)]


def read_manifests(paths: Sequence[str], shortest: float, longest: float, tarred: bool = False) -> Survey:
    survey = Survey()
    for path in paths:
        for number, line in enumerate(_lines(Path(path)), start=1):
            if line.strip():
                _add(survey, line, Path(path), number, (shortest, longest), tarred)
    return survey


def _lines(path: Path) -> Iterator[str]:
    if not path.is_file():
        raise BadInputError(f"there is no manifest {path}.", "check the path.")
    with path.open(encoding="utf-8", errors="replace") as file:
        yield from file


def _add(
    survey: Survey, line: str, manifest: Path, number: int, limits: tuple[float, float], tarred: bool
) -> None:
    found = _parsed(line, manifest, number, tarred)
    if isinstance(found, Fault):
        survey.faults.append(found)
    elif found.duration < limits[0]:
        survey.too_short += 1
    elif found.duration > limits[1]:
        survey.too_long += 1
    else:
        survey.entries.append(found)


def _parsed(line: str, manifest: Path, number: int, tarred: bool) -> Entry | Fault:
    where = f"{manifest}, line {number}"
    try:
        content = json.loads(line)
        name = content["audio_filepath"]
        offset, duration = content.get("offset") or 0.0, content.get("duration")
        if not isinstance(name, str):
            raise TypeError(f"audio_filepath is {name!r}")
        path = name if tarred else str(manifest.parent / name)
        if duration is None:
            if tarred:
                raise KeyError("duration")
            duration = _seconds(path) - offset
        numbers = float(offset), float(duration)
    except KeyError as error:
        return Fault(where, "without a needed key", str(error))
    except (ValueError, TypeError, AttributeError) as error:
        return Fault(where, "not a JSON object of a clip", str(error))
    except (OSError, soundfile.LibsndfileError) as error:
        return Fault(where, "of unknown duration", str(error))
    if not all(map(math.isfinite, numbers)) or numbers[0] < 0:
        return Fault(where, "not a JSON object of a clip", f"offset and duration are {numbers}")
    shard = content.get("shard_id")
    return Entry(path, *numbers, shard if isinstance(shard, int) else None)


def _seconds(path: str) -> float:
    if not Path(path).is_file():
        raise FileNotFoundError(f"no file {path}")
    found = soundfile.info(path)
    return float(found.frames / found.samplerate)
