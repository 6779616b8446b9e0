"""The first code in the child: waits for torch to be imported, then puts the plan and the probe in place."""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hotlap import integrations
from hotlap.discover import units
from hotlap.errors import visible
from hotlap.facts import private
from hotlap.facts.job import masked
from hotlap.facts.rewrite import Rewriting, is_rewrite
from hotlap.launch.environment import (
    EXPERIMENTS,
    FOLDER,
    IMPORTS,
    ORIGIN,
    PHASES,
    PLAN,
    PUT,
    REFERENCE,
    TAPS,
    WATCH,
    WITNESS,
)
from hotlap.launch.import_hook import Doorman
from hotlap.ports.integration import Integration
from hotlap.probe import boundary

if TYPE_CHECKING:
    from hotlap.probe.feed import Feed
    from hotlap.probe.session import Session

SEEN = "seen.jsonl"
_COMPILER = ("torch._dynamo.callback", "torch._dynamo.trace_rules")


def attach_when_torch_comes() -> None:
    """Called once per process, before any of the user's code."""
    folder, origin = Path(os.environ[FOLDER]), int(os.environ[ORIGIN])
    if not folder.is_dir():
        return  # a process that outlived its run
    note_process(folder, torch=False)
    if os.environ.get(IMPORTS):
        from hotlap.launch.warmed import ImportRegister

        ImportRegister(Path(os.environ.pop(IMPORTS))).install()
    if os.environ.get(PLAN):
        boundary.attempt(_install_rewrites, Path(os.environ[PLAN]))
    arrival = _Arrival(folder, origin)
    doorman = Doorman()
    doorman.expect("torch", arrival.torch_came)
    for name in _COMPILER:
        doorman.expect(name, arrival.compiler_came)
    for framework in units(integrations, Integration):  # type: ignore[type-abstract]
        for name in framework.modules:
            doorman.expect(name, functools.partial(arrival.framework_came, framework))
    sys.meta_path.insert(0, doorman)


class _Arrival:
    """A framework's import begins before torch's and ends after it: by then there is a session, or a plan."""

    def __init__(self, folder: Path, origin: int) -> None:
        self._folder = folder
        self._origin = origin
        self._session: Any = None
        self._fitter: Any = None
        self._torch_is_here = False
        self._home = os.getcwd()  # noqa: PTH109  # the script may leave it
        self._early: list[tuple[Integration, ModuleType]] = []  # a progress bar, say, imported ahead of torch

    def torch_came(self, _: ModuleType) -> None:
        if os.environ.get(PLAN):
            self._fitter = boundary.attempt(_fit_plan, Path(os.environ[PLAN]), self._folder)
            if self._fitter is None:
                print(f"hotlap: the plan is not applied: {visible(boundary.faults[-1])}", file=sys.stderr)
        if os.environ.get(TAPS) != "off":
            from hotlap.probe.attach import attach

            phases = [name for name in os.environ.get(PHASES, "").split(",") if name]
            self._session = attach(self._folder, self._origin, phases, self._experiments())
        if os.environ.get(WATCH):
            boundary.attempt(_watch, self._folder, os.environ[WATCH])
        if os.environ.get(WITNESS):
            boundary.attempt(_bear_witness, self._folder, os.environ[WITNESS])
        self._torch_is_here = True
        for framework, early in self._early:
            self.framework_came(framework, early)
        note_process(self._folder, torch=True)

    def _experiments(self) -> Any:
        if not os.environ.get(EXPERIMENTS):
            return None
        base = self._fitter.settings if self._fitter is not None else {}
        return functools.partial(DeferredExperimentPhase, base=base, home=self._home)

    def compiler_came(self, module: ModuleType) -> None:
        if self._session is not None:
            from hotlap.probe.taps import compiler

            compiler.install(self._session, module)
            if self._fitter is not None and hasattr(module, "BUILTIN_INLINE_WHEN_CALLED"):
                from hotlap.launch.fitting import let_the_compiler_through

                let_the_compiler_through(module)

    def framework_came(self, framework: Integration, module: ModuleType) -> None:
        if not self._torch_is_here:
            self._early.append((framework, module))
            return
        if self._fitter is not None:
            boundary.attempt(framework.offer, module, self._fitter)
        if self._session is not None:
            boundary.attempt(framework.attach, module, self._session)


def _install_rewrites(path: Path) -> None:
    """Before any of the user's modules is loaded; a plan without rewrites costs the reading of its file."""
    passed = json.loads(path.read_text(encoding="utf-8"))
    wanted = {key: value for key, value in passed["settings"].items() if is_rewrite(key)}
    if wanted:
        from hotlap.rewriting import hook

        rewritings = [Rewriting.of(*each) for each in wanted.items()]
        hook.install(rewritings, passed["home"], passed.get("prepared", {}))


def _fit_plan(path: Path, folder: Path) -> Any:
    from hotlap.launch.fitting import fit

    return fit(path, folder)


def _watch(folder: Path, module: str) -> None:
    importlib.import_module(module).install(folder)


def _bear_witness(folder: Path, wanted: str) -> None:
    from hotlap.probe import witness
    from hotlap.probe.reference import Reference
    from hotlap.seams.patches import PatchStack

    asked = os.environ.get(REFERENCE, "")
    path = Path(f"{asked.removeprefix(PUT)}.{os.environ.get('RANK', '0')}")
    reference = Reference(path, puts=asked.startswith(PUT)) if asked else None
    witness.install(folder, witness.Wanted(*map(int, wanted.split(":"))), PatchStack().wrap, reference)


def note_process(folder: Path, *, torch: bool) -> None:
    """That this process was reached: a run without a training step says how far it came."""
    line = json.dumps({"pid": os.getpid(), "argv": masked(sys.argv), "torch": torch})
    with open(folder / SEEN, "a", encoding="utf-8", opener=private.opener) as file:
        file.write(line + "\n")


class DeferredExperimentPhase:
    """Experiments after the window, as a phase of a session; what they need is imported only then.

    Over at once where it cannot begin. `base` are the settings that the job runs under, `home` is the folder that it
    began in.
    """

    steps = 1 << 60

    def __init__(self, session: Session, feed: Feed, base: Mapping[str, Any], home: str = "") -> None:
        self._session, self._feed, self._base, self._home = session, feed, base, home
        self._phase: Any = None

    @property
    def over(self) -> bool:
        return self._phase is None or self._phase.over

    def begin(self) -> None:
        from hotlap.plan.catalogue import all_knobs
        from hotlap.seams.experiments import ExperimentPhase, Switches

        knobs = all_knobs()
        phase = ExperimentPhase(self._session, self._feed, Switches(self._base, knobs, self._home), knobs)
        phase.begin()
        self._phase = phase

    def step_made(self) -> None:
        if self._phase is not None:
            self._phase.step_made()

    def end(self) -> None:
        if self._phase is not None:
            self._phase.end()
