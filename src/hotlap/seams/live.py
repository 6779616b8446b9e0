"""Puts the plans of a schedule in place in turn while a script trains: a block of steps each, then the next.

Start-up is often most of a trial. What can be taken back between two steps is tried within one process instead; the
incumbent stands between any two challengers, so that a drift of the machine or of the script meets both alike.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from hotlap.facts.blocks import NOT_LIVE, Block, Schedule, write_block
from hotlap.ports.knob import CannotActError, Knob, NotMineError
from hotlap.ports.target import Loader, Seam, Undo
from hotlap.probe import boundary, control
from hotlap.seams.fitter import Fitter
from hotlap.seams.loader_live import LiveLoaders

_MOST_STEPS = 2000  # of a block: steps of microseconds


class LiveFitter(Fitter):
    """Knobs on which the schedule's plans differ are fitted to what they meet as the present plan says."""

    def __init__(self, schedule: Schedule, knobs: Mapping[str, Knob], options: Mapping[str, Any]) -> None:
        first, named = schedule.plans[0], {key for plan in schedule.plans for key in plan}
        super().__init__({key: first.get(key) for key in named}, knobs, options=options)
        differ = {key for key in named if any(plan.get(key) != first.get(key) for plan in schedule.plans)}
        self._live = {key for key in differ if key in knobs and knobs[key].live}
        self._met: defaultdict[str, list[Any]] = defaultdict(list)
        self.loaders = LiveLoaders(self._changed_arguments)

    def switch(self, plan: Mapping[str, Any]) -> str:
        """Put this plan in the place of the present one; the reason where one of its settings cannot act."""
        changed = [key for key in self.settings if self.settings[key] != plan.get(key)]
        for key in changed:
            self.undo(key)
            self.settings[key] = plan.get(key)
        reasons = [self._put(self.knobs[key]) for key in changed if self.settings[key] is not None]
        if any(self.knobs[key].seam is Seam.LOADER for key in changed):
            self.loaders.renew()
        return next((reason for reason in reasons if reason), "")

    def _put(self, knob: Knob) -> str:
        if knob.id not in self._live or not self._met[knob.id]:
            return NOT_LIVE
        apply = self._try_arguments if knob.seam is Seam.LOADER else self._act
        reasons = [apply(knob, target) for target in self._met[knob.id]]
        return "" if "" in reasons else reasons[0]

    def _act(self, knob: Knob, target: Any) -> str:
        try:
            self._keep(knob, knob.apply(target, self.settings[knob.id]))
        except (CannotActError, NotMineError) as refusal:
            return str(refusal) or NOT_LIVE
        return ""

    def _try_arguments(self, _: Knob, target: Loader) -> str:
        try:
            self._changed_arguments(target)
        except (CannotActError, NotMineError) as refusal:
            return str(refusal) or NOT_LIVE
        return ""

    def _changed_arguments(self, target: Loader) -> dict[str, Any]:
        """What the present plan makes of a loader's own arguments."""
        own = self.loaders.own(target)
        for knob, setting in super().wants(Seam.LOADER):
            if knob.id in self._live and setting is not None:
                knob.apply(own, setting)
        return own.arguments

    def _fit(self, knob: Knob, setting: Any, place: str, apply: Callable[[], Undo], target: Any) -> None:
        if knob.id in self._live:
            if target is None:
                self._live.discard(knob.id)  # an option of a trainer's constructor is read once
            else:
                self._met[knob.id].append(target)
                if isinstance(target, Loader):
                    self.loaders.expect(target)
        if setting is not None:
            super()._fit(knob, setting, place, apply, target)


class Turns:
    """Counts the steps of the optimizer that steps first, and goes on with the schedule when a block is over."""

    def __init__(self, fitter: LiveFitter, schedule: Schedule, folder: Path, origin: int) -> None:
        self._fitter, self._schedule, self._folder, self._origin = fitter, schedule, folder, origin
        self._order = list(schedule.order)
        self._optimizer: int | None = None
        self._steps = 0
        self._until = schedule.warm_steps
        self._block_steps = schedule.least_steps
        self._present = 0
        self._began = 0

    def listen(self) -> None:
        self._fitter.loaders.listen(self._fitter)
        self._fitter.patches.keep(register_optimizer_step_post_hook(self._step_made).remove)

    def _step_made(self, optimizer: Any, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            boundary.attempt(self._count, optimizer)

    def _count(self, optimizer: Any) -> None:
        self._optimizer = self._optimizer or id(optimizer)
        if id(optimizer) != self._optimizer:
            return
        self._steps += 1
        if self._steps == self._schedule.warm_steps // 2:
            self._began = self._now()
        if self._steps >= self._until:
            self._begin() if self._until == self._schedule.warm_steps else self._go_on()

    def _begin(self) -> None:
        """After the first steps: they say how many make a block."""
        counted = self._schedule.warm_steps - self._schedule.warm_steps // 2
        pace_s = max(1e-6, (self._now() - self._began) / 1e9 / counted)
        wanted = int(self._schedule.block_s / pace_s)
        self._block_steps = min(_MOST_STEPS, max(self._schedule.least_steps, wanted))
        self._next()

    def _go_on(self) -> None:
        write_block(self._folder, Block(self._present, self._began, self._now()))
        self._next()

    def _next(self) -> None:
        while self._order:
            self._present = self._order.pop(0)
            refused = self._fitter.switch(self._schedule.plans[self._present])
            self._began = self._now()
            if not refused:
                self._until = self._steps + self._block_steps
                return
            write_block(self._folder, Block(self._present, self._began, self._began, refused))
            self._order = [each for each in self._order if each != self._present]
        control.stop_after(self._folder, 1)

    def _now(self) -> int:
        return time.perf_counter_ns() - self._origin
