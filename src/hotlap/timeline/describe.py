"""From the probe's plain portraits to facts: loaders, model, optimizers, switches, cadences, pauses."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from hotlap.facts.timeline import (
    AcceleratorFacts,
    Cadence,
    DatasetFacts,
    LoaderFacts,
    ModelFacts,
    OptimizerFacts,
    Pauses,
    Runtime,
    SourceLine,
    Stage,
    Steps,
    SyncPoint,
)
from hotlap.probe.marks import Kind
from hotlap.timeline.segments import STAGES, Folded, LoaderUse

_OCCASIONAL = (Stage.LOG, Stage.VALIDATE, Stage.CHECKPOINT)
_MOST_SYNCS = 40
_HOLD = 0.5  # of the time of a stage
_APART = 3.0  # times as long: what lies closer together is one kind of occurrence
Facts = Mapping[str, Any]


def place(plain: Sequence[Any] | None) -> SourceLine | None:
    return SourceLine(*plain[:3]) if plain else None


def known_loaders(facts: Facts) -> list[int]:
    """The probe's numbers of those loaders that could be looked at, in the order in which they were first met."""
    return [number for number, portrait in enumerate(facts.get("loaders", ())) if portrait.get("dataset")]


def loaders(facts: Facts, seen: Folded, worker_threads: Mapping[int, int]) -> tuple[LoaderFacts, ...]:
    """The known loaders; a worker names its own by the place in this row."""
    return tuple(
        _loader(facts["loaders"][number], seen.loaders.get(number, LoaderUse()), worker_threads.get(number))
        for number in known_loaders(facts)
    )


def _loader(portrait: Facts, use: LoaderUse, worker_threads: int | None) -> LoaderFacts:
    return LoaderFacts(
        dataset=DatasetFacts(
            kind=portrait["dataset"],
            length=portrait.get("length"),
            place=place(portrait.get("dataset_place")),
            item_bytes=portrait.get("item_bytes"),
            deterministic=portrait.get("deterministic"),
            draws_random=portrait.get("draws_random"),
        ),
        batch_size=portrait.get("batch_size"),
        num_workers=portrait.get("num_workers", 0),
        prefetch_factor=portrait.get("prefetch_factor"),
        persistent_workers=portrait.get("persistent_workers", False),
        pin_memory=portrait.get("pin_memory", False),
        shuffle=portrait.get("shuffle"),
        drop_last=portrait.get("drop_last", False),
        collate=portrait.get("collate", ""),
        start_method=portrait.get("start_method", "fork"),
        iterable=portrait.get("iterable", False),
        place=place(portrait.get("place")),
        epochs=portrait.get("epochs", 0),
        batches=use.batches + use.validation_batches,
        wait_s=use.wait_ns / 1e9,
        startup_s=use.startup_ns / 1e9,
        batch_bytes=portrait.get("batch_bytes"),
        worker_threads=worker_threads,
        training=use.batches > 0,
    )


def model(facts: Facts, seen: Folded) -> ModelFacts | None:
    portrait = facts.get("model")
    if not portrait:
        return None
    return ModelFacts(
        kind=portrait["kind"],
        parameters=portrait["parameters"],
        modules=portrait["modules"],
        calls_per_step=_per_step(facts.get("calls_per_optimizer_step"), seen),
        dtypes=tuple(portrait["dtypes"]),
        devices=tuple(portrait["devices"]),
        compiled=portrait["compiled"],
        place=place(portrait.get("place")),
        operators_per_step=_per_step(facts.get("operators_per_optimizer_step"), seen),
        frozen_parts=portrait.get("frozen_parts", 0),
    )


def _per_step(counted: float | None, seen: Folded) -> float | None:
    """It is counted from one optimizer step to the next, and a step of training may hold several of those."""
    made = seen.optimizer_steps
    if counted is None or not made:  # a script without an optimizer steps once for each pass
        return counted
    return counted * made.total() / max(made.values())


def optimizers(facts: Facts, seen: Folded) -> tuple[OptimizerFacts, ...]:
    return tuple(
        OptimizerFacts(
            **portrait | {"place": place(portrait.get("place"))}, steps=seen.optimizer_steps[number]
        )
        for number, portrait in enumerate(facts.get("optimizers", ()))
        if portrait
    )


def runtime(facts: Facts) -> Runtime:
    plain = facts.get("runtime") or {}
    return Runtime(
        threads=plain.get("threads", 0),
        autocast=facts.get("autocast"),
        grad_scaler=facts.get("grad_scaler", False),
        debug=tuple(plain.get("debug", ())),
        debug_place=_switch_place(facts, plain.get("debug", ())),
        tf32=plain.get("tf32", False),
        cudnn_benchmark=plain.get("cudnn_benchmark", False),
        recompiles=tuple(map(_reason, facts.get("recompiles", ()))),
        framework=facts.get("framework", "plain"),
        backend=plain.get("backend"),
        operator_us=facts["operator_ns"] / 1e3 if "operator_ns" in facts else None,
        pages=facts.get("pages_per_step"),
        page_us=facts["page_ns"] / 1e3 if "page_ns" in facts else None,
        accelerator=AcceleratorFacts(**facts["accelerator"]) if facts.get("accelerator") else None,
    )


def _switch_place(facts: Facts, switches: Sequence[str]) -> SourceLine | None:
    """Where the first switch that is on was turned on; one set by the environment has no line."""
    places = facts.get("switch_places", {})
    return next((place(places[name]) for name in switches if name in places), None)


def _reason(text: str) -> str:
    """Dynamo's reason: of several guards the first one that failed, without its number."""
    first = text.strip().splitlines()[0].lstrip("- ")
    return re.sub(r"^\d+/\d+: ", "", first)


def syncs(facts: Facts, seen: Folded) -> tuple[SyncPoint, ...]:
    """The lines with most synchronisations by time, then by count."""
    stages = _stages_of_syncs(seen)
    rows = sorted(enumerate(facts.get("syncs", ())), key=lambda row: (-row[1][5], -row[1][4]))[:_MOST_SYNCS]
    return tuple(
        SyncPoint(SourceLine(file, line, function), call, count, spent / 1e9, stages.get(number, Stage.OTHER))
        for number, (file, line, function, call, count, spent) in rows
    )


def _stages_of_syncs(seen: Folded) -> dict[int, Stage]:
    """The stage in which each place synchronised most often."""
    starts = [span[0] for span in seen.spans]
    counts: dict[int, Counter[Stage]] = {}
    for place_number, moment in seen.sync_places:
        index = bisect_right(starts, moment) - 1
        if index >= 0 and moment < seen.spans[index][1]:
            counts.setdefault(place_number, Counter())[STAGES[seen.spans[index][2]]] += 1
    return {number: stages.most_common(1)[0][0] for number, stages in counts.items()}


def exchanges(seen: Folded, since: int) -> dict[Stage, float]:
    """Steady seconds in collectives, by the stage that they began in."""
    starts = [span[0] for span in seen.spans]
    found: dict[Stage, float] = {}
    for start, end in seen.overlays[Kind.COMM]:
        if start >= since and (index := bisect_right(starts, start) - 1) >= 0:
            stage = STAGES[seen.spans[index][2]]
            found[stage] = found.get(stage, 0.0) + (end - start) / 1e9
    return found


def cadences(steps: Steps, steady: int, facts: Facts | None = None) -> tuple[Cadence, ...]:
    """How often the occasional stages came in the steady state, what they took, and where that is decided."""
    found = []
    places = {Stage.VALIDATE: (facts or {}).get("validation_place")}
    if trainer := (facts or {}).get("trainer_place"):
        places = {Stage.VALIDATE: trainer, Stage.CHECKPOINT: trainer}
    for stage in _OCCASIONAL:
        column = steps.stages[stage][steady:]
        held = _occurrences(column)
        if held:
            between = (held[-1] - held[0]) / (len(held) - 1) if len(held) > 1 else None
            found.append(Cadence(stage, len(held), sum(column) / 1e9, between, place(places.get(stage))))
    return tuple(found)


def _occurrences(column: Sequence[int]) -> list[int]:
    """The steps that hold a stage: those above the widest gap between two lengths, where they make up half of its time.

    A framework collects figures in each step, and looks whether it has to log; that it does is another matter, however
    long it then waits for other ranks.
    """
    spent = sorted((each for each in column if each > 0), reverse=True)
    held, least, widest = 0, spent[-1] if spent else 0, _APART
    for one, shorter in pairwise(spent):
        held += one
        if held >= _HOLD * sum(spent) and one >= widest * shorter:
            least, widest = one, one / shorter
    return [number for number, each in enumerate(column) if each > 0 and each >= least]


def pauses(collections: Sequence[tuple[int, int]], compiles: Sequence[tuple[int, int]], since: int) -> Pauses:
    """A collection while code is compiled is the compiler's: it leaves thousands of objects behind."""
    late = [(start, end) for start, end in compiles if start >= since]
    times = [
        end - start
        for start, end in collections
        if start >= since and not any(low <= start < high for low, high in late)
    ]
    compiling = sum(end - start for start, end in late)
    return Pauses(len(times), sum(times) / 1e9, max(times, default=0) / 1e9, compiling / 1e9)
