"""Start the ranks by spawning processes, instead of running the script once for each.

What it does
    Sets Lightning's `strategy` to `ddp_spawn` where the script leaves it to Lightning or asks for `ddp`.
When it helps
    Windows, and places such as notebooks where the script cannot be started again by its command line.
What it costs
    Model and data are pickled to each rank, and what a rank changes is not seen by the script after `fit`, except the
    weights.
Numerics
    None: the ranks train as before.
"""

from __future__ import annotations

from hotlap.facts.host import Host
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import Numerics, TrainerKnob
from hotlap.ports.values import Flag


class DdpSpawn(TrainerKnob):
    id = "ddp-spawn"
    relieves = frozenset()
    numerics = Numerics.BITWISE
    values = Flag()
    stage = Stage.OTHER
    absent = "the script starts its ranks by itself, or has one"

    def settings(self, host: Host, timeline: Timeline) -> tuple[bool, ...]:
        """None of its own: it makes ranks start where they could not, it makes none faster."""
        return ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return 0.0
