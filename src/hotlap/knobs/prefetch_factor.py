"""Let each worker load this many batches ahead.

What it does
    Builds every DataLoader that has workers with this `prefetch_factor`.
When it helps
    The workers keep up on average, but batches take unequal time, and the queue runs empty behind a slow one.
What it costs
    Memory in /dev/shm: batch size times workers times the factor.
Numerics
    None. A sampler that draws random numbers or changes something of its own while it is iterated does so earlier:
    statistical.
"""

from __future__ import annotations

from hotlap.cost.reading import prefetch_of, training_loader
from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Loader, Seam, Undo
from hotlap.ports.values import Whole

_CANDIDATES = (4, 8)  # beyond this, memory is better spent on a cache


class PrefetchFactor(Knob):
    id = "prefetch-factor"
    relieves = frozenset({Cause.PREFETCH_SHALLOW})
    seam = Seam.LOADER
    numerics = Numerics.BITWISE
    values = Whole(1, 256)
    live = True

    def settings(self, host: Host, timeline: Timeline) -> tuple[int, ...]:
        found = training_loader(timeline)
        if found is None or not found[1].num_workers:
            return ()
        loader, size = found[1], found[1].batch_bytes or 0
        room = host.shm_free_bytes
        return tuple(
            factor
            for factor in _CANDIDATES
            if factor > prefetch_of(loader) and (room is None or factor * loader.num_workers * size <= room)
        )

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        """What steps wait above the median: a deeper queue only evens out."""
        waits = summarise(timeline).stages.get(Stage.DATA)
        if waits is None or waits.ms <= 0 or not self.settings(host, timeline):
            return 0.0
        return waits.share * max(0.0, 1.0 - waits.p50_ms / waits.ms)

    def apply(self, target: Loader, setting: int) -> Undo:
        if not target.arguments["num_workers"]:
            raise CannotActError("the loader has no workers that could load ahead; set num-workers as well")
        return target.change(prefetch_factor=setting)

    def numerics_at(self, target: Loader, setting: int) -> Numerics:
        return Numerics.STATISTICAL if target.arguments["num_workers"] and target.lazy() else Numerics.BITWISE
