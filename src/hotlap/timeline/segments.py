"""Gives every moment of one step a stage: the innermost open mark, or, in a gap, what its neighbours say.

A gap between forward and backward is the loss, so forward; one between backward and the optimizer's step is
clipping or scaling, so optimizer. Where a script has no DataLoader the gap before forward is data; where it
has no optimizer the gap after backward is its update. All else stays `other`, and the stack sampler names
its lines.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hotlap.facts.timeline import Stage, Steps
from hotlap.probe.marks import EVAL_ON, TRAIN_ON, Kind

GAP = -1

STAGES = tuple(Stage)
_STAGE_OF_KIND = {
    Kind.DATA: Stage.DATA,
    Kind.LOADER: Stage.DATA,
    Kind.TRANSFER: Stage.TRANSFER,
    Kind.FORWARD: Stage.FORWARD,
    Kind.EVAL_FORWARD: Stage.FORWARD,
    Kind.BACKWARD: Stage.BACKWARD,
    Kind.OPTIMIZER: Stage.OPTIMIZER,
    Kind.STEP: Stage.OPTIMIZER,
    Kind.LOG: Stage.LOG,
    Kind.VALIDATE: Stage.VALIDATE,
    Kind.CHECKPOINT: Stage.CHECKPOINT,
}
STAGE_INDEX = {int(kind): STAGES.index(stage) for kind, stage in _STAGE_OF_KIND.items()} | {
    GAP: STAGES.index(Stage.OTHER)
}

_OWN = frozenset({Kind.LOG, Kind.CHECKPOINT})  # keep their name inside validation
_TRAINING = frozenset({Kind.FORWARD, Kind.BACKWARD, Kind.STEP})
_ANCHORS = frozenset(
    {
        Kind.DATA,
        Kind.LOADER,
        Kind.FORWARD,
        Kind.BACKWARD,
        Kind.OPTIMIZER,
        Kind.STEP,
        Kind.VALIDATE,
        Kind.CHECKPOINT,
    }
)
_AFTER_FORWARD = frozenset({Kind.FORWARD, Kind.BACKWARD, Kind.OPTIMIZER, Kind.STEP})
_UPDATE = frozenset({Kind.OPTIMIZER, Kind.STEP})


@dataclass
class Segment:
    """A stretch of time under one kind of work; EVAL_ON and TRAIN_ON are moments, of no length."""

    start: int
    end: int
    kind: int
    samples: int = -1
    tokens: int = -1
    padded: int = -1
    loader: int = -1
    opens: bool = False  # iter(loader), rather than one batch of it
    ends: int = -1  # loader that had no batch left


@dataclass(frozen=True)
class Traits:
    """What is true of the whole run, and decides how gaps are read."""

    has_loader: bool = True
    has_optimizer: bool = True
    inferred: set[Stage] = field(default_factory=set)


def name_gaps(segments: list[Segment], traits: Traits, cut_off: bool = False) -> None:
    """Rename segments in place until only true gaps are left as GAP.

    With `cut_off` the last segment ends where the run was cut off: the next thing would have been a forward pass.
    """
    _find_validation(segments)
    _eval_forwards_are_forwards(segments)
    following = _next_anchors(segments, Kind.FORWARD if cut_off else GAP)
    forwards = any(each.kind == Kind.FORWARD for each in segments)
    before, backward_seen = GAP, False
    for segment, after in zip(segments, following, strict=True):
        if segment.kind == GAP or (
            segment.kind == Kind.STEP and before == Kind.FORWARD and after == Kind.BACKWARD
        ):
            segment.kind = _name(before, after, backward_seen, forwards, traits)
            if segment.kind == GAP:
                continue
        if segment.kind in _ANCHORS:
            before = segment.kind
            backward_seen = backward_seen or segment.kind == Kind.BACKWARD


def _name(before: int, after: int, backward_seen: bool, forwards: bool, traits: Traits) -> int:
    if before == Kind.FORWARD and after in _AFTER_FORWARD:
        return Kind.FORWARD
    if backward_seen and before in (Kind.BACKWARD, Kind.OPTIMIZER) and after in _UPDATE:
        return Kind.OPTIMIZER
    if not traits.has_optimizer and before == Kind.BACKWARD:
        traits.inferred.add(Stage.OPTIMIZER)
        return Kind.OPTIMIZER
    if not forwards and after == Kind.BACKWARD and (traits.has_loader or before == Kind.DATA):
        traits.inferred.add(Stage.FORWARD)
        return Kind.FORWARD
    if not traits.has_loader and after in (Kind.FORWARD, Kind.OPTIMIZER) and not backward_seen:
        traits.inferred.add(Stage.DATA)
        return Kind.DATA
    return GAP


def _next_anchors(segments: Sequence[Segment], after: int) -> list[int]:
    following = [GAP] * len(segments)
    for index in range(len(segments) - 1, -1, -1):
        following[index] = after
        if segments[index].kind in _ANCHORS:
            after = segments[index].kind
    return following


def _find_validation(segments: list[Segment]) -> None:
    """Batches that only met forward passes without gradients, and what lies between eval() and train()."""
    kinds = {each.kind for each in segments}
    if EVAL_ON in kinds:
        _bracketed_validation(segments)
    if Kind.EVAL_FORWARD in kinds:
        _batches_of_validation(segments)


def _bracketed_validation(segments: list[Segment]) -> None:
    opened: int | None = None
    for index, segment in enumerate(segments):
        if segment.kind == EVAL_ON and opened is None:
            opened = index
        elif segment.kind in _TRAINING:
            opened = None
        elif segment.kind == TRAIN_ON and opened is not None:
            _make_validation(segments[opened : _end_of_validation(segments, opened, index)])
            opened = None


def _end_of_validation(segments: Sequence[Segment], opened: int, closed: int) -> int:
    """Many loops call train() only once they hold the next batch: its fetch is the training's.

    Validation ends with the framework's evaluation loop where one was seen, else before the batch that was fetched
    after its last forward pass. The fetch that finds its loader exhausted brings no samples and is still its own.
    """
    end = closed
    for index in range(closed - 1, opened, -1):
        segment = segments[index]
        if segment.kind == Kind.VALIDATE:
            return index + 1
        if segment.kind == Kind.EVAL_FORWARD:
            break
        if (segment.kind == Kind.DATA and segment.samples >= 0) or (
            segment.kind == Kind.LOADER and end < closed
        ):
            end = index
    return end


def _batches_of_validation(segments: list[Segment]) -> None:
    follows = False
    for group in _batches(segments):
        kinds = {each.kind for each in group}
        fetched_nothing = not kinds & {Kind.FORWARD, Kind.EVAL_FORWARD, Kind.BACKWARD, Kind.STEP}
        follows = not kinds & _TRAINING and (Kind.EVAL_FORWARD in kinds or (follows and fetched_nothing))
        if follows:
            _make_validation(group)


def _batches(segments: Sequence[Segment]) -> Iterable[list[Segment]]:
    """Segments from one batch's fetch to the next; what precedes the first fetch is no batch."""
    group: list[Segment] = []
    fetched = False
    for segment in segments:
        begins = segment.kind in (Kind.DATA, Kind.LOADER)
        if begins and fetched:
            yield group
            group, fetched = [], False
        if begins or group:
            group.append(segment)
            fetched = fetched or segment.kind == Kind.DATA
    if group:
        yield group


def _make_validation(segments: Iterable[Segment]) -> None:
    for segment in segments:
        if segment.kind not in _OWN and segment.kind < EVAL_ON:
            segment.kind = Kind.VALIDATE


def _eval_forwards_are_forwards(segments: Iterable[Segment]) -> None:
    """What is left is a teacher, or a script that trains in eval mode."""
    for segment in segments:
        if segment.kind == Kind.EVAL_FORWARD:
            segment.kind = Kind.FORWARD


# What folding the marks of one process gives: columns of steps, and what was seen beside them.


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
