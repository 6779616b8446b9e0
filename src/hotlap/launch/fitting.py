"""In the training process: fits the plan that the parent passed on, and tells once what became of it."""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
from collections.abc import Callable, Iterable
from multiprocessing import util
from pathlib import Path
from types import ModuleType
from typing import Any

from hotlap.errors import visible
from hotlap.launch.environment import StepCounter
from hotlap.plan.catalogue import some_knobs
from hotlap.plan.record import Fitted, Record, StepDown, told, write_record
from hotlap.probe import boundary
from hotlap.probe.control import WindowDone
from hotlap.sameness import breach
from hotlap.seams.fitter import Fitter

_ASKED_STEPS = 2
"""Where knobs are only asked, the script is ended after these: what comes with the second step has come by then."""


def fit(path: Path, folder: Path) -> Fitter:
    """Called once torch is imported, before the probe's taps: what they see is what the plan has made of it."""
    from hotlap.seams import installed, memory_ladder

    passed = json.loads(path.read_text(encoding="utf-8"))
    fitter = Fitter(
        passed["settings"],
        some_knobs(passed["settings"]),
        asking=passed.get("asking", False),
        options=passed.get("options", {}),
    )
    for key in fitter.settings.keys() - fitter.knobs.keys():
        fitter.record(
            Fitted(key, fitter.settings[key], acts=False, reason="the script's Python has no such knob")
        )
    breach.report_to(folder)
    fitting = _Fitting(fitter, folder)
    installed.install(fitter)
    boundary.attempt(memory_ladder.install, fitter)
    boundary.attempt(fitting.listen)
    return fitter


def let_the_compiler_through(rules: ModuleType) -> None:
    """What a plan has put around the script's calls is traced like the script itself, also where taps are left out."""
    ours = [
        module for name, module in sys.modules.items() if name.startswith(("hotlap.seams", "hotlap.knobs"))
    ]
    rules.BUILTIN_INLINE_WHEN_CALLED.update(each.__file__ for each in ours if each.__file__)


class _Fitting:
    """Of one process: counts its steps, writes its record, tells of it at the first step."""

    def __init__(self, fitter: Fitter, folder: Path) -> None:
        self._fitter = fitter
        self._folder = folder
        self._counter = StepCounter(folder)
        self._told = False
        self._trained = False
        self._strict = bool(fitter.options.get(breach.STRICT))

    def listen(self) -> None:
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook
        from torch.utils.data._utils import worker

        self._is_compiling = torch.compiler.is_compiling
        self._fitter.changed.append(self._changed)
        self._fitter.noted.append(self._write)
        self._fitter.wrap(worker, "_worker_loop", self._around_worker)
        self._fitter.patches.keep(register_optimizer_step_post_hook(self._step_made).remove)
        atexit.register(self._end)
        util.register_after_fork(self, _end_with_process)

    def _step_made(self, optimizer: Any, *_: Any) -> None:
        if self._is_compiling():
            return
        steps = boundary.attempt(self._counter.count, optimizer)
        if not self._told:
            self._told = True
            boundary.attempt(self._tell)
        if self._strict and breach.declared():
            raise WindowDone(breach.EXIT_CODE)
        if self._fitter.asking and steps and steps >= _ASKED_STEPS:
            raise WindowDone(0)

    def _tell(self) -> None:
        self._trained = True
        for unmet in self._fitter.unmet():
            self._fitter.record(unmet)
        self._write()
        if _rank() == 0 and not self._fitter.asking:
            _say(told(self._fitter.fitted))

    def _changed(self, news: Fitted | StepDown) -> None:
        if self._trained or isinstance(news, StepDown):
            self._write()
        lowered = isinstance(news, Fitted) and news.acts and bool(news.reason) and self._told
        if (lowered or isinstance(news, StepDown)) and _rank() == 0:
            _say(told([news]))

    def _write(self) -> None:
        record = Record(
            os.getpid(),
            _rank(),
            tuple(self._fitter.fitted),
            tuple(self._fitter.step_downs),
            faults=tuple(boundary.faults),
            notes=dict(self._fitter.notes),
        )
        write_record(self._folder, record)

    def _end(self) -> None:
        """A script that made no step, or whose plan changed after the first, leaves its record as well."""
        if self._fitter.fitted and self._fitter.changed and self._folder.is_dir():
            boundary.attempt(self._write)

    def _around_worker(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def looped(*args: Any, **kwargs: Any) -> None:
            self._fitter.retire()
            original(*args, **kwargs)

        return looped


def _end_with_process(fitting: _Fitting) -> None:
    # Children of multiprocessing leave by os._exit: no atexit, but finalizers that are set after the fork.
    util.Finalize(None, fitting._end, exitpriority=-90)


def _rank() -> int:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return int(os.environ.get("RANK", "0") or 0)


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        print(visible(line), file=sys.stderr, flush=True)
