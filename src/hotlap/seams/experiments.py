"""Experiments in the training process, after its window: variants of its settings take turns, a block of steps each.

The parent asks for rounds (facts/experiment.py) and decides what they show. Here settings are switched between two
steps, steps are timed, and whatever the script would save or print meanwhile is held back: what experiments train is
thrown away.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from hotlap.facts import private
from hotlap.facts.experiment import (
    FREE_INPUT,
    HELD,
    READY,
    Round,
    StepBlock,
    read_round,
    write_block,
    write_failure,
)
from hotlap.facts.rewrite import is_rewrite
from hotlap.plan.catalogue import with_rewrites
from hotlap.ports.knob import CannotActError, Knob, NotMineError, Numerics
from hotlap.ports.target import Process, Seam
from hotlap.probe import boundary, held, marks
from hotlap.probe.batch import BatchReader
from hotlap.probe.feed import Feed
from hotlap.probe.held import HeldOutput
from hotlap.probe.session import Session, now
from hotlap.seams import model, optimizer, process, step
from hotlap.seams.experiment_input import BatchSource
from hotlap.seams.fitter import Fitter

NOTHING_MET = "nothing was met that it could act on between two steps"
_SEAMS = (process, model, optimizer, step)
_SETTLING = 1 / 3  # of a block's steps, before those that are measured: caches warm, queues fill
_LEAST_SETTLING = 2
_LEAST_MEASURED = 3  # steps of a block that is cut short
_LOOK_EVERY_S = 0.02
_STEPS_TO_MEET = 3  # seams are put in place in the first, and meet the model in the second


class Switches(Fitter):
    """Applies a variant's settings to what the script has built, and takes them back for the next one.

    `base` are the settings of the plan that the job runs under: those stay.
    """

    def __init__(self, base: Mapping[str, Any], knobs: Mapping[str, Knob], home: str = "") -> None:
        live = {
            key: knob
            for key, knob in knobs.items()
            if knob.live and knob.seam is not Seam.LOADER and key not in base
        }
        super().__init__(dict.fromkeys(live), live)
        self.numerics: dict[str, str] = {}
        self._targets: defaultdict[str, list[Any]] = defaultdict(list)
        self._home = home

    def meet_rewrites(self, variant: Mapping[str, Any]) -> None:
        """Rewrites are known by name when a round asks for them: they act on the process."""
        for key in variant:
            if is_rewrite(key) and key not in self.knobs:
                self.knobs = with_rewrites(self.knobs, [key], self._home)
                self.settings[key] = None
                self._targets[key] = [Process(self.patches)]

    def switch(self, variant: Mapping[str, Any]) -> str:
        """The reason where one of its settings cannot act."""
        self.numerics = {}
        changed = [key for key in self.settings if self.settings[key] != variant.get(key)]
        for key in changed:
            self.undo(key)
            self.settings[key] = variant.get(key)
        reasons = [self._put(self.knobs[key]) for key in changed if self.settings[key] is not None]
        return next((reason for reason in reasons if reason), "")

    def _put(self, knob: Knob) -> str:
        if not self._targets[knob.id]:
            return NOTHING_MET
        reasons = [self._act(knob, target) for target in self._targets[knob.id]]
        return "" if "" in reasons else reasons[0]

    def _act(self, knob: Knob, target: Any) -> str:
        setting = self.settings[knob.id]
        try:
            found = knob.numerics_at(target, setting)
            self._keep(knob, knob.apply(target, setting))
        except (CannotActError, NotMineError) as refusal:
            return str(refusal) or NOTHING_MET
        except Exception as fault:
            boundary.record(f"knob {knob.id}", fault)
            return f"{type(fault).__name__}: {fault}"
        known = Numerics(self.numerics.get(knob.id, found.value))
        self.numerics[knob.id] = max(known, found, key=list(Numerics).index).value
        return ""

    def offer(self, seam: Seam, target: Any, place: str = "") -> None:  # noqa: ARG002
        """What is met is kept for later, and left alone now."""
        for knob, _ in self.wants(seam):
            self._targets[knob.id].append(target)


class ExperimentPhase:
    """One step of the script at a time. Without a round it runs on as it is, and looks for the next one."""

    steps = 1 << 60

    def __init__(self, session: Session, feed: Feed, switches: Switches, knobs: Mapping[str, Knob]) -> None:
        self._session, self._feed, self._switches = session, feed, switches
        self._loader_knobs = {key: knob for key, knob in knobs.items() if knob.seam is Seam.LOADER}
        self._input = BatchSource(feed, self._loader_knobs)
        self._output = HeldOutput(session.folder / f"{session.pid}.{HELD}")
        session.after_phases.append(self._output.end)
        self.over = False
        self._number = 1
        self._round: Round | None = None
        self._coming: Round | None = None
        self._order: list[int] = []
        self._block: _Steps | None = None
        self._ended_at = 0
        self._looked_at = 0.0
        self._reader: BatchReader | None = None
        self._samples = self._tokens = -1
        self._spoiled = False
        self._made = self._evaluated = 0  # steps; those with a model.eval() in them
        self._evaluates = False
        self._has_met = False

    def begin(self) -> None:
        self._output.begin()
        boundary.attempt(held.hold, self._session.folder.parent)
        self._session.experimenting = True  # to the end of the process: nothing of it is ever saved
        self._feed.on_batch = self._count
        self._feed.on_other_batch = self._spoil
        self._session.eval_begins.append(self._evaluate)
        self._feed.replays = not self._input.obstacle
        # Not here: a step has just ended, and torch goes through the hooks that seams add to.
        self._session.backward_begins.append(self._install)

    def _install(self, _: Any) -> bool:
        for seam in _SEAMS:
            boundary.attempt(seam.install, self._switches)
        register_optimizer_step_post_hook(self._meet)  # behind those that seams have added
        return False

    def _meet(self, *_: Any) -> None:
        """Once, when a step has ended: roots of the model are looked for from here to the end of the next one."""
        if not self._has_met:
            self._has_met = True
            for each in self._session.optimizers():
                self._switches.meet(Seam.OPTIMIZER, each)

    def step_made(self) -> None:
        self._made += 1
        self._evaluated += self._evaluates
        # A validation without a loader; not where it belongs to most steps.
        self._spoiled |= self._evaluates and 2 * self._evaluated < self._made
        if self._made == _STEPS_TO_MEET:
            private.write(self._session.folder / f"{self._session.pid}.{READY}", b"")
        wall = now() - self._ended_at
        if self._block is not None:
            self._block.add(wall, self._samples, self._tokens, spoiled=self._spoiled)
            if self._input.failed:
                self._close_block(self._input.failed)
            elif self._block.full:
                self._close_block()
        if self._block is None:
            self._next_block()
        self._samples = self._tokens = -1
        self._spoiled = self._evaluates = False
        self._ended_at = now()

    def end(self) -> None:
        raised = getattr(sys, "last_value", None)  # by the script, and not caught by it
        if isinstance(raised, Exception):
            boundary.attempt(write_failure, self._session.folder, self._session.pid, raised)
        boundary.attempt(self._switches.switch, {})
        boundary.attempt(self._input.close)
        self._feed.on_batch = self._feed.on_other_batch = None

    def _count(self, batch: Any) -> None:
        self._reader = self._reader or BatchReader(0)
        self._reader.read(batch, self._fact)

    def _fact(self, value: int) -> None:
        code, number = value & 255, value >> 8
        if code == marks.SAMPLES:
            self._samples = max(0, self._samples) + number
        elif code == marks.TOKENS:
            self._tokens = max(0, self._tokens) + number

    def _evaluate(self) -> None:
        self._evaluates = True

    def _spoil(self) -> None:
        """A validation, say, is within this step."""
        self._spoiled = True

    def _next_block(self) -> None:
        if not self._order and not self._next_round():
            return
        asked = self._round
        assert asked is not None
        while self._order and self._block is None:
            position = self._order.pop(0)
            began = now()
            settings = asked.variants[position]
            refused, ahead = self._switch(settings)
            if refused:
                self._order = [each for each in self._order if each != position]
                write_block(
                    self._session.folder,
                    self._session.pid,
                    StepBlock(self._number - 1, position, refused=refused),
                )
                self._switch({})
            else:
                settling = max(_LEAST_SETTLING, int(asked.steps * _SETTLING)) + ahead
                self._block = _Steps(position, asked.steps, settling, asked.longest_s, began)

    def _next_round(self) -> bool:
        """Whether there is one, and its time has come: all ranks begin with the same step, which they know before."""
        if self._coming is None and time.monotonic() - self._looked_at >= _LOOK_EVERY_S:
            self._looked_at = time.monotonic()
            self._coming = read_round(self._session.folder, self._number)
        asked = self._coming
        if asked is None or self._session.control.steps < asked.begin:
            return False
        self._coming = None
        self._number += 1
        self._round, self._order = asked, list(asked.order)
        for settings in asked.done:
            boundary.attempt(self._input.drop, settings)
        self.over = asked.last
        return bool(self._order)

    def _switch(self, settings: Mapping[str, Any]) -> tuple[str, int]:
        """Why it cannot act, and how many batches are ready ahead of their turn."""
        boundary.attempt(self._switches.meet_rewrites, settings)
        of_loader = {key: value for key, value in settings.items() if key in self._loader_knobs}
        unknown = settings.keys() - self._loader_knobs.keys() - self._switches.knobs.keys() - {FREE_INPUT}
        if unknown:
            return f"{', '.join(sorted(unknown))} cannot be switched while the script runs", 0
        rewritten = tuple(sorted(key for key in settings if is_rewrite(key)))
        ahead = 0
        try:
            if rewritten:  # workers that are started from here on have the functions as they are now
                self._input.refuse_spawned()
                refused = self._switches.switch(settings)
                if refused:
                    return refused, 0
            if FREE_INPUT in settings:
                self._input.replay()
            else:
                ahead = self._input.use(of_loader, rewritten)
        except CannotActError as refusal:
            return str(refusal), 0
        except Exception as fault:
            boundary.record("experiment", fault)
            return f"{type(fault).__name__}: {fault}", 0
        return ("" if rewritten else self._switches.switch(settings)), ahead

    def _close_block(self, failed: str = "") -> None:
        block, self._block = self._block, None
        if block is None:
            return
        numerics = {**self._input.numerics, **self._switches.numerics}
        seen = block.seen(self._number - 1, numerics, failed)
        seen = replace(seen, start_ns=self._input.start_ns)
        write_block(self._session.folder, self._session.pid, seen)
        if failed:
            self._order = [each for each in self._order if each != block.variant]
            self._switch({})


class _Steps:
    """The steps of a block under way."""

    def __init__(self, variant: int, wanted: int, settling: int, longest_s: float, began: int) -> None:
        self.variant = variant
        self._wanted, self._settling, self._longest_ns, self._began = wanted, settling, longest_s * 1e9, began
        self._measured_from = 0
        self._seen, self._hopeless = 0, False
        self._made: list[tuple[int, int, int]] = []

    def add(self, wall: int, samples: int, tokens: int, *, spoiled: bool) -> None:
        """From the third step on, one that alone takes longer than a block may ends it, and is what was measured: the
        first two may build something."""
        self._seen += 1
        self._hopeless = 0 < self._longest_ns < wall and self._seen > _LEAST_SETTLING
        if self._settling > 0 and not self._hopeless:
            self._settling -= 1
            self._measured_from = now()
        elif not spoiled:
            self._made.append((wall, samples, tokens))

    @property
    def full(self) -> bool:
        if self._hopeless and self._made:
            return True
        late = self._longest_ns and now() - (self._measured_from or self._began) > self._longest_ns
        return len(self._made) >= (_LEAST_MEASURED if late else self._wanted)

    def seen(self, number: int, numerics: Mapping[str, str], failed: str) -> StepBlock:
        walls, samples, tokens = zip(*self._made, strict=True) if self._made else ((), (), ())
        settling = max(0, self._measured_from - self._began)
        if failed:
            return StepBlock(number, self.variant, refused=failed, settling_ns=settling)
        return StepBlock(number, self.variant, walls, samples, tokens, "", numerics, settling)
