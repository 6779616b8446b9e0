"""Gives each setting of a plan its place in one process, and keeps the record of what became of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from hotlap.plan.record import Fitted, StepDown
from hotlap.ports.knob import CannotActError, Knob, NotMineError, Numerics
from hotlap.ports.target import Seam, Trainer, Undo
from hotlap.probe import boundary
from hotlap.sameness import breach
from hotlap.seams.patches import PatchStack

__all__ = ["Fitted", "Fitter", "StepDown"]

BOUNDS = "bounds"  # among the options: knob to the classes of numerics that its setting may be of

_ABSENT = {
    Seam.PROCESS: "torch was not imported",
    Seam.LOADER: "the script builds no DataLoader",
    Seam.MODEL: "no module was called in training mode",
    Seam.OPTIMIZER: "the script builds no torch optimizer",
    Seam.STEP: "no training step was seen",
    Seam.DISTRIBUTED: "no DistributedDataParallel was built: there are no gradients to exchange",
    Seam.TRAINER: "the script has no trainer of a framework that hotlap knows, and a raw loop does this by itself",
}


class Fitter:
    """Seams offer their targets; each knob of the plan that belongs there is applied, once for each target.

    `patches` are for whoever acts in this process. A fault of a knob is its refusal, never the script's end.
    With `asking` each setting is taken back at once: it only finds out whether it could act.
    `options` are words of the command line to the seams that are no setting, such as `skip_bad_samples`.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        knobs: Mapping[str, Knob],
        *,
        asking: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        # Sorted, so that a plan means the same in whatever order its lines stand.
        self.settings = {key: settings[key] for key in sorted(settings)}
        self.knobs = knobs
        self.asking = asking
        self.options = options or {}
        self.patches = PatchStack()
        self.wrap = self.patches.wrap
        self.fitted: list[Fitted] = []
        self.step_downs: list[StepDown] = []
        self.changed: list[Callable[[Fitted | StepDown], None]] = []  # called with each new record
        self.notes: dict[str, Any] = {}  # what the parent should know of this process when it has ended
        self.noted: list[Callable[[], None]] = []  # called with each new note
        self.growths: list[Mapping[str, float]] = []  # of trainers, see Trainer.growth
        self.meets: defaultdict[Seam, list[Callable[[Any], None]]] = defaultdict(list)  # see `meet`
        self._taken: set[str] = set()  # by a trainer's own options
        self._undo: list[tuple[str, Undo]] = []
        self._retired = False

    def wants(self, seam: Seam) -> list[tuple[Knob, Any]]:
        """Knobs of the plan that act at this seam and that no trainer has taken."""
        if self._retired:
            return []
        # A step down may have added a setting of a knob that the plan did not name.
        free = [key for key in self.settings if key not in self._taken and key in self.knobs]
        chosen = [(self.knobs[key], self.settings[key]) for key in free]
        chosen.sort(key=lambda each: bool(each[0].follows & self.settings.keys()))
        return [(knob, value) for knob, value in chosen if knob.seam is seam]

    def offer(self, seam: Seam, target: Any, place: str = "") -> None:
        """Apply what the plan has for this target."""
        for knob, setting in self.wants(seam):
            self._fit(knob, setting, place, partial(knob.apply, target, setting), target)

    def trainer(self, trainer: Trainer) -> None:
        """A framework's own option is the best place for a setting."""
        self.growths.append(trainer.growth)  # not the trainer itself, which would be kept alive
        for key, take in trainer.takes.items():
            if key in self.settings and not self._retired:
                self._taken.add(key)
                setting = self.settings[key]
                self._fit(self.knobs[key], setting, trainer.framework, partial(take, setting), None)

    def meet(self, seam: Seam, built: Any) -> None:
        """A model or an optimizer that was built before the seams were there, when they are used as a library."""
        for listener in self.meets[seam]:
            boundary.attempt(listener, built)

    def unmet(self) -> list[Fitted]:
        """Settings that no seam has asked for so far: what they act on is not in this script."""
        met = {each.knob for each in self.fitted}
        return [
            Fitted(key, value, acts=False, reason=self.knobs[key].absent or _ABSENT[self.knobs[key].seam])
            for key, value in self.settings.items()
            if key not in met and key in self.knobs
        ]

    def record(self, fitted: Fitted) -> None:
        """Once each: a script that builds its loader anew in every epoch tells nothing new."""
        lowered = replace(fitted, numerics=Numerics.AUDITED)
        known = [replace(each, reason=fitted.reason) for each in self.fitted]
        if fitted not in self.fitted and not (fitted.acts and lowered in known):
            self.fitted.append(fitted)
            self._tell(fitted)

    def note(self, key: str, value: Any) -> None:
        """For the parent, which may have to do without this process's last words."""
        self.notes[key] = value
        for listener in self.noted:
            boundary.attempt(listener)

    def stepped_down(self, step_down: StepDown) -> None:
        """A setting was replaced while the script ran; it is printed and recorded."""
        self.settings[step_down.knob] = step_down.after
        self.step_downs.append(step_down)
        self._tell(step_down)

    def step_down(self, step_down: StepDown, targets: Iterable[Any] = ()) -> None:
        """Take a knob back and apply its lesser setting to these targets instead."""
        self.undo(step_down.knob)
        self.stepped_down(step_down)
        knob = self.knobs[step_down.knob]
        for target in targets:
            try:
                self._keep(knob, knob.apply(target, step_down.after))
            except CannotActError:
                continue  # without the setting that went it is there already
            except Exception as fault:
                boundary.record(f"knob {knob.id}", fault)

    def withdraw(self, knob: str, place: str, reason: str) -> None:
        """It turned out at the first use that a knob cannot act there; it has taken itself back."""
        mine = [each for each in self.fitted if each.knob == knob and each.place == place]
        self.fitted = [each for each in self.fitted if each not in mine]
        self.record(Fitted(knob, self.settings.get(knob), acts=False, place=place, reason=reason))

    def lower(self, knob: str, place: str, reason: str) -> None:
        """It turned out while the script ran that the class of what acts there is audited, not bit-equal."""
        for number, each in enumerate(self.fitted):
            if each.acts and (each.knob, each.place, each.numerics) == (knob, place, Numerics.BITWISE):
                self.fitted[number] = replace(each, numerics=Numerics.AUDITED, reason=reason)
                self._tell(self.fitted[number])

    def has_taken(self, knob: str) -> bool:
        """Whether a trainer's own option has it."""
        return knob in self._taken

    def undo(self, *knobs: str) -> None:
        """Take these knobs back, or everything: the newest first."""
        for key, undo in reversed(self._undo):
            if not knobs or key in knobs:
                boundary.attempt(undo)
        self._undo = [(key, undo) for key, undo in self._undo if knobs and key not in knobs]
        if not knobs:
            self.patches.undo_all()

    def retire(self) -> None:
        """From now on nothing is fitted here: this process turned out to be a worker."""
        self._retired = True
        self.changed.clear()
        self.noted.clear()

    def _tell(self, news: Fitted | StepDown) -> None:
        for listener in self.changed:
            boundary.attempt(listener, news)

    def _fit(self, knob: Knob, setting: Any, place: str, apply: Callable[[], Undo], target: Any) -> None:
        try:
            if any(each.knob == knob.id for each in breach.found):
                raise CannotActError("it did not train the same model in this run")
            numerics = knob.numerics_at(target, setting) if target is not None else knob.numerics
            self._refuse_beyond_bounds(knob, numerics)
            undo = apply()
            if target is not None:  # some of it shows only once the setting acts
                numerics = max(numerics, knob.numerics_at(target, setting), key=list(Numerics).index)
        except NotMineError:
            return
        except CannotActError as refusal:
            self.record(Fitted(knob.id, setting, acts=False, place=place, reason=str(refusal)))
        except Exception as fault:
            boundary.record(f"knob {knob.id}", fault)
            reason = f"{type(fault).__name__}: {fault}"
            self.record(Fitted(knob.id, setting, acts=False, place=place, reason=reason))
        else:
            self._keep(knob, undo)
            self.record(Fitted(knob.id, setting, acts=True, place=place, numerics=numerics))

    def _refuse_beyond_bounds(self, knob: Knob, numerics: Numerics) -> None:
        """A preset's setting may turn out to do more to the numbers here than its knob does elsewhere."""
        bounds = self.options.get(BOUNDS, {}).get(knob.id)
        if bounds is not None and numerics not in bounds:
            raise CannotActError(f"here it is {numerics}, which it may not be without --allow {numerics}")

    def _keep(self, knob: Knob, undo: Undo) -> None:
        if self.asking:
            boundary.attempt(undo)
        elif knob.seam is not Seam.LOADER:
            # A loader has read its arguments by then: there is nothing to take back, and its dataset would be kept.
            self._undo.append((knob.id, undo))
