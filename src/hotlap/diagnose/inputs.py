"""What exposed data time consists of, and which line holds it.

Without workers a step waits for exactly what loading does. With workers it waits while they are busy: the
exposed time is split as the workers' time was. What they did not spend on items and collating, they handed
over or stood idle. The time in which they were started again is not theirs to split.
"""

from __future__ import annotations

from dataclasses import dataclass

from hotlap.cost.pipeline import Load, Setting
from hotlap.cost.reading import load_of, rows_of, setting_of, training_loader
from hotlap.diagnose.severity import Evidence
from hotlap.facts.timeline import HotLine, Loader, Place, Stage, Timeline, Worker
from hotlap.ports.rule import Sight


@dataclass(frozen=True)
class Input:
    """The loader that feeds training. Of the step, `restart`, `cpu`, `wait`, `collate` and `rest` make up `data`."""

    loader: Loader
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
    def setting(self) -> Setting:
        return setting_of(self.loader)

    @property
    def item_ms(self) -> float:
        return self.load.work.fetch_s * 1e3 / max(1.0, self.load.work.items)


def input_of(sight: Sight) -> Input | None:
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
    return Input(loader, load, data, computing, work.wait_s * scale, work.collate_s * scale, busy, restart)


def restart_share(sight: Sight, index: int) -> float:
    """Of the time that was seen, what starting a loader's workers again took; the first start has to be paid once."""
    loader, seconds = sight.timeline.loaders[index], sight.summary.seconds + sight.timeline.warmup.seconds
    if not restarts(loader) or seconds <= 0:
        return 0.0
    return start_s(sight.timeline, index) * (loader.epochs - 1) / seconds


def restarts(loader: Loader) -> bool:
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


def _busy(sight: Sight, rows: list[Worker]) -> float:
    work = sum(row.fetch_s + row.collate_s for row in rows)
    life = work + sum(row.wait_s for row in rows)
    # While the run validates or saves, the queue is full and the workers rest: that is no sign of spare
    # capacity.
    resting = life * sight.summary.share(Stage.VALIDATE, Stage.CHECKPOINT)
    return min(1.0, work / max(work, life - resting))


def item_line(timeline: Timeline, workers: int) -> HotLine | None:
    """The line that held most of the item time, where the items are made."""
    return top_line(timeline, Stage.DATA, "worker" if workers else "main")


def top_line(timeline: Timeline, stage: Stage, role: str = "main") -> HotLine | None:
    """The line that the sampler met most often in that stage."""
    lines = [line for line in timeline.lines if line.stage is stage and line.role == role]
    return max(lines, key=lambda line: line.share, default=None)


def line_evidence(line: HotLine | None) -> Evidence:
    """The two figures that every cause with a line gives."""
    if line is None:
        return {}
    place = line.place
    called = line.callee or place.code or place.function or f"{place.file}:{place.line}"
    return {"callee": called, "line_share": line.share}


def line_place(line: HotLine | None, otherwise: Place | None) -> Place | None:
    return line.place if line else otherwise
