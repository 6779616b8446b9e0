"""What folding the marks of one process gives: columns of steps, and what was seen beside them."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hotlap.diagnose.segments import STAGES, Segment
from hotlap.facts.timeline import Stage, Steps
from hotlap.probe.marks import Kind


def _column() -> array[int]:
    return array("q")


@dataclass
class Columns:
    """Growing columns of a Steps."""

    start: array[int] = field(default_factory=_column)
    wall: array[int] = field(default_factory=_column)
    stages: list[array[int]] = field(default_factory=lambda: [_column() for _ in STAGES])
    samples: array[int] = field(default_factory=_column)
    tokens: array[int] = field(default_factory=_column)
    padded: array[int] = field(default_factory=_column)
    micro: array[int] = field(default_factory=_column)
    compiled: list[bool] = field(default_factory=list)

    def append(
        self,
        start: int,
        end: int,
        stages: Sequence[int],
        segments: Iterable[Segment],
        micro: int,
        compiled: bool,
    ) -> None:
        self.start.append(start)
        self.wall.append(end - start)
        self.micro.append(micro)
        self.compiled.append(compiled)
        for column, spent in zip(self.stages, stages, strict=True):
            column.append(spent)
        batches = [each for each in segments if each.kind == Kind.DATA and each.loader >= 0]
        self.samples.append(_total(each.samples for each in batches))
        self.tokens.append(_projected([each.tokens for each in batches]))
        self.padded.append(_projected([each.padded for each in batches]))

    def extend_last(self, stages: Sequence[int]) -> None:
        """Time after the last step that belongs to it."""
        self.wall[-1] += sum(stages)
        for column, spent in zip(self.stages, stages, strict=True):
            column[-1] += spent

    def steps(self) -> Steps:
        return Steps(
            start=self.start,
            wall=self.wall,
            stages=dict(zip(STAGES, self.stages, strict=True)),
            samples=self.samples,
            tokens=self.tokens,
            padded=self.padded,
            micro=self.micro,
        )


@dataclass
class LoaderUse:
    """What was seen of one loader from the consumer's side."""

    batches: int = 0
    validation_batches: int = 0
    wait_ns: int = 0
    startup_ns: int = 0  # iter(loader), where workers are started, and the last fetch, where they are ended
    starts: list[int] = field(default_factory=list)

    def add(self, segment: Segment) -> None:
        spent = segment.end - segment.start
        if segment.opens:
            self.startup_ns += spent
            self.starts.append(segment.start)
            return
        self.batches += segment.kind == Kind.DATA
        self.validation_batches += segment.kind == Kind.VALIDATE
        self.wait_ns += spent


@dataclass
class Folded:
    """All that the marks of one process say. `spans` are (start, end, stage's index), for placing stack samples."""

    columns: Columns
    loaders: dict[int, LoaderUse]
    overlays: dict[Kind, list[tuple[int, int]]]
    sync_places: list[tuple[int, int]]
    spans: list[tuple[int, int, int]]
    first: int
    last: int
    boundary: str
    inferred: tuple[Stage, ...]
    optimizer_steps: Counter[int]
    dropped_steps: int


def _total(values: Iterable[int]) -> int:
    known = [value for value in values if value >= 0]
    return sum(known) if known else -1


def _projected(values: Sequence[int]) -> int:
    """Tokens are counted in some batches only: where gradients are accumulated these speak for the whole step."""
    known = [value for value in values if value >= 0]
    return round(sum(known) * len(values) / len(known)) if known else -1
