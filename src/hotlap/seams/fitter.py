"""Gives each setting of a plan its place in one process, and keeps the record of what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Seam, Trainer, Undo
from hotlap.probe import boundary
from hotlap.seams.patches import Patches


@dataclass(frozen=True)
class Fitted:
    """What became of a setting: `place` says where it acts, `reason` why it does not."""

    knob: str
    setting: Any
    acts: bool
    place: str = ""
    reason: str = ""
    numerics: Numerics = Numerics.BITWISE


class Fitter:
    """Seams offer their targets; each knob of the plan that belongs there is applied, once for each target.

    `patches` are for whoever acts in this process. A fault of a knob is its refusal, never the script's end.
    """

    def __init__(self, settings: Mapping[str, Any], knobs: Mapping[str, Knob]) -> None:
        self.settings = dict(settings)
        self.knobs = knobs
        self.patches = Patches()
        self.wrap = self.patches.wrap
        self.fitted: list[Fitted] = []
        self.changed: list[Callable[[Fitted], None]] = []  # called with each new record
        self._taken: set[str] = set()  # by a trainer's own options
        self._undo: list[Undo] = []

    def wants(self, seam: Seam) -> list[tuple[Knob, Any]]:
        """Knobs of the plan that act at this seam and that no trainer has taken."""
        chosen = [(self.knobs[key], value) for key, value in self.settings.items() if key not in self._taken]
        return [(knob, value) for knob, value in chosen if knob.seam is seam]

    def offer(self, seam: Seam, target: Any, place: str = "") -> None:
        """Apply what the plan has for this target."""
        for knob, setting in self.wants(seam):
            self._fit(knob, setting, place, partial(knob.apply, target, setting), target)

    def trainer(self, trainer: Trainer) -> None:
        """A framework's own option is the best place for a setting."""
        for key, take in trainer.takes.items():
            if key in self.settings:
                self._taken.add(key)
                setting = self.settings[key]
                self._fit(self.knobs[key], setting, trainer.framework, partial(take, setting), None)

    def unmet(self) -> list[Fitted]:
        """Settings that no seam has asked for so far: what they act on is not in this script."""
        met = {each.knob for each in self.fitted}
        return [
            Fitted(key, value, acts=False, reason=_absent(self.knobs[key].seam))
            for key, value in self.settings.items()
            if key not in met
        ]

    def record(self, fitted: Fitted) -> None:
        self.fitted.append(fitted)
        for listener in self.changed:
            boundary.attempt(listener, fitted)

    def undo(self) -> None:
        """Take everything back, the newest first."""
        for undo in reversed(self._undo):
            boundary.attempt(undo)
        self._undo.clear()
        self.patches.undo_all()

    def _fit(self, knob: Knob, setting: Any, place: str, apply: Callable[[], Undo], target: Any) -> None:
        try:
            numerics = knob.numerics_at(target, setting) if target is not None else knob.numerics
            self._undo.append(apply())
        except CannotActError as refusal:
            self.record(Fitted(knob.id, setting, acts=False, place=place, reason=str(refusal)))
        except Exception as fault:
            boundary.record(f"knob {knob.id}", fault)
            reason = f"{type(fault).__name__}: {fault}"
            self.record(Fitted(knob.id, setting, acts=False, place=place, reason=reason))
        else:
            self.record(Fitted(knob.id, setting, acts=True, place=place, numerics=numerics))


_ABSENT = {
    Seam.PROCESS: "torch was not imported",
    Seam.LOADER: "the script builds no DataLoader",
    Seam.MODEL: "no module was called in training mode",
    Seam.OPTIMIZER: "the script builds no torch optimizer",
    Seam.STEP: "no training step was seen",
    Seam.TRAINER: "the script has no trainer of a framework that hotlap knows, and a raw loop does this by itself",
}


def _absent(seam: Seam) -> str:
    return _ABSENT[seam]
