"""What exposed data time consists of, and which line holds it.

Without workers a step waits for exactly what loading does. With workers it waits while they are busy: the
exposed time is split as the workers' time was. What they did not spend on items and collating, they handed
over or stood idle. The time in which they were started again is not theirs to split.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from hotlap.cost.reading import Load, load_of, rows_of, training_loader
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding, Severity
from hotlap.facts.experiment import Experiment
from hotlap.facts.timeline import HotLine, LoaderFacts, SourceLine, Stage, Timeline, WorkerFacts
from hotlap.ports.rule import Sight

SAMPLES = 5  # fewer do not make a place
_TRAINS = re.compile(r"\.(fit|train)\(")
_TAKES = re.compile(r"DataLoader\w*\.__(iter|next)__$")
_FETCHING = frozenset(
    {"__getitem__", "__getitems__", "__iter__", "__next__"}
)  # what a loader calls of a dataset


@dataclass(frozen=True)
class InputTimes:
    """The loader that feeds training. Of the step, `restart`, `cpu`, `wait`, `collate` and `rest` make up `data`."""

    loader: LoaderFacts
    load: Load
    data: float
    cpu: float  # or waiting for a core
    wait: float
    collate: float
    busy: float  # share of their life that the workers prepared batches; 1 without workers
    restart: float = 0.0

    @property
    def rest(self) -> float:
        return max(0.0, self.data - self.restart - self.cpu - self.wait - self.collate)

    @property
    def item_ms(self) -> float:
        return self.load.work.fetch_s * 1e3 / max(1.0, self.load.work.items)


def input_of(sight: Sight) -> InputTimes | None:
    """The input side of the pace-setting rank; None where no loader, no batch or no steady step was seen."""
    found = training_loader(sight.timeline)
    load = load_of(sight.timeline, sight.summary, sight.host)
    if found is None or load is None or load.work.seconds <= 0:
        return None
    index, loader = found
    data = sight.summary.share(Stage.DATA)
    busy = _busy(sight, rows_of(sight.timeline, index)) if loader.num_workers else _loading(load, data)
    restart = min(data, restart_share(sight, index))
    scale = (data - restart) * busy / load.work.seconds
    work = load.work
    computing = (work.cpu_s + work.queue_s) * scale
    return InputTimes(
        loader, load, data, computing, work.wait_s * scale, work.collate_s * scale, busy, restart
    )


def restart_share(sight: Sight, index: int) -> float:
    """Of the time that was seen, what starting a loader's workers again took; the first start has to be paid once."""
    loader, seconds = sight.timeline.loaders[index], sight.summary.seconds + sight.timeline.warmup.seconds
    if not restarts(loader) or seconds <= 0:
        return 0.0
    return start_s(sight.timeline, index) * (loader.epochs - 1) / seconds


def restarts(loader: LoaderFacts) -> bool:
    """Whether its workers were ended and started again."""
    return loader.num_workers > 0 and not loader.persistent_workers and loader.epochs > 1


def start_s(timeline: Timeline, index: int) -> float:
    """One start: of `iter(loader)`, or of the worker that was ready first where that took longer, as with spawn."""
    loader = timeline.loaders[index]
    rows = [row.startup_s / row.startups for row in timeline.workers if row.loader == index and row.startups]
    return max(loader.startup_s / loader.epochs, min(rows, default=0.0))


def _loading(load: Load, data: float) -> float:
    """Without workers: the part of the data stage that the batch's work explains."""
    exposed = data * load.observed_s
    return min(1.0, load.batches * load.work.seconds / exposed) if exposed > 0 else 1.0


def _busy(sight: Sight, rows: list[WorkerFacts]) -> float:
    work = sum(row.fetch_s + row.collate_s for row in rows)
    life = work + sum(row.wait_s for row in rows)
    # While the run validates or saves, the queue is full and the workers rest: that is no sign of spare
    # capacity.
    resting = life * sight.summary.share(Stage.VALIDATE, Stage.CHECKPOINT)
    return min(1.0, work / max(work, life - resting))


def workers_tried(experiment: Experiment, sight: Sight) -> tuple[int | None, int | None]:
    """Workers of the loader, and those of an experiment with their number; None where it changed something else."""
    found = training_loader(sight.timeline)
    tried = int(experiment.setting) if experiment.knob == "num-workers" else None
    return found[1].num_workers if found else None, tried


def data_line(timeline: Timeline, workers: int) -> HotLine | None:
    """The line that held most of the data time, where batches are made."""
    return top_line(timeline, Stage.DATA, role_of(workers))


def item_line(timeline: Timeline, loader: LoaderFacts) -> HotLine | None:
    """The line that held most of the item time, where the items are made: none of the loader's own collate function.
    None where it was met too seldom to be sure."""
    lines = _lines(timeline, Stage.DATA, role_of(loader.num_workers))
    line = _largest(line for line in lines if not _collates(line, loader))
    return line if line is not None and line.samples >= SAMPLES else None


def collate_line(timeline: Timeline, loader: LoaderFacts, *, mostly: bool) -> HotLine | None:
    """The line that held most of the collating. The sampler does not tell it from fetching items: it is one of the
    loader's own collate function or, where batches are `mostly` collated, the largest that is not in a dataset."""
    lines = _lines(timeline, Stage.DATA, role_of(loader.num_workers))
    own = _largest(line for line in lines if _collates(line, loader))
    return own or (_largest(line for line in lines if not _fetches(line)) if mostly else None)


def top_line(timeline: Timeline, stage: Stage, role: str = "main") -> HotLine | None:
    """The line that the sampler met most often in that stage; of a validation, none inside the model."""
    lines = _lines(timeline, stage, role)
    if stage is Stage.VALIDATE:
        lines = [line for line in lines if line.place.function.rpartition(".")[2] != "forward"]
    return _largest(lines)


def role_of(workers: int) -> str:
    """Where batches are made."""
    return "worker" if workers else "main"


def _lines(timeline: Timeline, stage: Stage, role: str) -> list[HotLine]:
    """Not the call of a trainer, nor the loop that takes batches from a loader: data are made elsewhere."""
    here = [line for line in timeline.lines if line.stage is stage and line.role == role]
    own = [line for line in here if not calls_trainer(line, timeline)]
    return [line for line in own if stage is not Stage.DATA or not _TAKES.search(line.callee)]


def _largest(lines: Iterable[HotLine]) -> HotLine | None:
    return max(lines, key=lambda line: line.share, default=None)


def _collates(line: HotLine, loader: LoaderFacts) -> bool:
    """Whether it is in the loader's collate function, or in a method of its collate object."""
    return bool(loader.collate) and f"{line.place.function}.".startswith(f"{loader.collate}.")


def _fetches(line: HotLine) -> bool:
    return not _FETCHING.isdisjoint(line.place.function.split("."))


def calls_trainer(line: HotLine, timeline: Timeline) -> bool:
    """Whether it is the script's call of a framework's trainer: all of the training is behind that line. A call of
    several lines shows in what it calls alone; `train` of a module is another."""
    if timeline.runtime.framework == "plain":
        return False
    owner, _, called = line.callee.rpartition(".")
    return bool(_TRAINS.search(line.place.code)) or (
        called in ("fit", "train") and owner not in ("", "Module")
    )


def line_evidence(line: HotLine | None) -> Evidence:
    """The two figures that every cause with a line gives."""
    if line is None:
        return {}
    place = line.place
    called = line.callee or place.code or place.function or f"{place.file}:{place.line}"
    return {"callee": called, "line_share": line.share}


def line_place(line: HotLine | None, otherwise: SourceLine | None) -> SourceLine | None:
    return line.place if line else otherwise


# Stages that come now and then: their share of the step, how often, and what each occurrence takes.


AGAIN = 2  # occurrences: of a single one nobody knows when the next one comes


def occasional(sight: Sight, cause: Cause, stage: Stage) -> Finding | None:
    """The finding of a stage that takes a share of the run although it trains nothing.

    What came once has a share of this window, but none of the run: it is a note.
    """
    seen = [each for each in sight.timeline.cadences if each.stage is stage and each.count > 0]
    if not seen:
        return None
    rhythm = max(seen, key=lambda each: each.seconds)
    recurs = rhythm.count >= AGAIN
    evidence: Evidence = {
        "stage_ms": sight.summary.ms(stage),
        "each_ms": rhythm.seconds * 1e3 / rhythm.count,
        "count": rhythm.count,
        "every": rhythm.every_steps if recurs else None,
    }
    where = rhythm.place or line_place(top_line(sight.timeline, stage), None)
    at_most = Severity.CRITICAL if recurs else Severity.NOTE
    return finding(cause, sight.summary.share(stage), evidence, where, at_most)
