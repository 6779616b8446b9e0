"""Keep the workers of a loader from one epoch to the next.

What it does
    Builds every DataLoader that has workers with `persistent_workers`. A script that changes its dataset between
    epochs (`dataset.set_epoch(3)`) would not reach workers that persist: such changes are noticed, and the workers
    started anew.
When it helps
    Epochs are short, or starting a worker is slow: it is forked in some 20 ms, and spawned in a second or more.
What it costs
    The workers' memory stays taken, also while another loader is at work.
Numerics
    None where items are the same each time: the seed that starting would have drawn is drawn all the same. Workers
    that persist do not seed themselves again, so items that draw random numbers, or count their calls, come out
    differently: statistical. Where what items depend on cannot all be walked, the class is audited: at random moments a
    batch is made again in the training process and compared.
"""

from __future__ import annotations

from hotlap.cost.reading import training_loader
from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Timeline
from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Loader, Seam, Undo
from hotlap.ports.values import Flag


class PersistentWorkers(Knob):
    id = "persistent-workers"
    relieves = frozenset({Cause.WORKERS_RESTART})
    seam = Seam.LOADER
    numerics = Numerics.BITWISE
    values = Flag()

    def settings(self, host: Host, timeline: Timeline) -> tuple[bool, ...]:
        found = training_loader(timeline)
        if found is None or not found[1].num_workers or found[1].persistent_workers or found[1].epochs < 2:
            return ()
        return (True,)

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        """All starts but the first, as a part of the time that was seen."""
        found, seconds = training_loader(timeline), summarise(timeline).seconds + timeline.warmup.seconds
        if found is None or seconds <= 0 or not self.settings(host, timeline):
            return 0.0
        loader = found[1]
        return min(1.0, loader.startup_s * (1.0 - 1.0 / loader.epochs) / seconds)

    def apply(self, target: Loader, setting: bool) -> Undo:
        if setting == bool(target.arguments["persistent_workers"]):
            return target.change()
        if setting and not target.arguments["num_workers"]:
            raise CannotActError("the loader has no workers to keep; set num-workers as well")
        return target.change(persistent_workers=setting)

    def numerics_at(self, target: Loader, setting: bool) -> Numerics:
        if setting == bool(target.arguments["persistent_workers"]) or not target.arguments["num_workers"]:
            return Numerics.BITWISE
        # Turned off, each epoch draws a seed that the script did not draw before.
        if not setting or target.iterable or target.draws():
            return Numerics.STATISTICAL
        return Numerics.AUDITED if target.unproved() else Numerics.BITWISE
