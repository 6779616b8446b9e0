"""A knob that acts through an option of a framework's trainer."""

from __future__ import annotations

from typing import Any, ClassVar

from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Ending, Stage, Timeline
from hotlap.ports.knob import CannotActError, Knob
from hotlap.ports.target import Seam, Trainer, Undo

_WITHOUT_TRAINER = ("plain", "accelerate", "fabric")  # the script's own loop decides


class TrainerKnob(Knob):
    """The integrations know the option; see `Trainer.takes`. `stage` is what it makes rarer or cheaper."""

    seam = Seam.TRAINER
    stage: ClassVar[Stage]

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return min(1.0, summarise(timeline).share(self.stage))

    def apply(self, target: Trainer, setting: Any) -> Undo:
        take = target.takes.get(self.id)
        if take is None:
            raise CannotActError(f"{target.framework} has no option for it")
        return take(setting)

    def has_trainer(self, timeline: Timeline) -> bool:
        return timeline.runtime.framework not in _WITHOUT_TRAINER

    def rarer(self, timeline: Timeline, *times: int) -> tuple[int, ...]:
        """Steps between two occurrences that are `times` as far apart as those that were seen; () where none were.

        A script without a framework's trainer has no option that could be set.
        """
        if not self.has_trainer(timeline):
            return ()
        seen = [each for each in timeline.cadences if each.stage is self.stage and each.every_steps]
        every = max(seen, key=lambda each: each.seconds).every_steps if seen else None
        whole = (
            len(timeline.steps) if timeline.ending is Ending.FINISHED else None
        )  # of the run, where it was seen
        rarer = [max(1, round(every * each)) for each in times] if every else []
        return tuple(each for each in rarer if whole is None or each <= whole)
