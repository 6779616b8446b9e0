"""`hotlap.profile(fn)`: the probe listens in this process while `fn` trains, and is taken away again."""

from __future__ import annotations

import html
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hotlap import integrations
from hotlap.discover import units
from hotlap.errors import HotlapError, UsageError
from hotlap.facts import codec
from hotlap.facts.job import Job
from hotlap.host.looks import LookRecord
from hotlap.host.machine import inspect_host
from hotlap.launch import runfolder
from hotlap.launch.bootstrap import note_process
from hotlap.launch.environment import already_inside
from hotlap.launch.observe import Observer
from hotlap.launch.process import Outcome
from hotlap.pipeline import Profile, concluded
from hotlap.ports.integration import Integration
from hotlap.probe import boundary
from hotlap.stats.robust import steady_from

_INTERRUPTED = 130
_LOOK_EVERY_S = 0.2
_HEIGHT_PX = 640
_under_way = threading.Lock()


class Profiled:
    """A profile: in a notebook its report is shown as the cell's value.

    `view` is what `hotlap profile --json` writes, `run` the run folder, for `hotlap report` and `hotlap diff`.
    """

    def __init__(self, profile: Profile) -> None:
        self.run = profile.run
        self.view: Mapping[str, Any] | None = profile.view
        self._reason = f"{profile.reason} -> {profile.remedy}"

    def __repr__(self) -> str:
        if self.view is None:
            return f"hotlap: {self._reason}"
        from hotlap.report.renderers.terminal import Terminal

        return Terminal().render(self.view)

    def _repr_html_(self) -> str:
        """The report in a frame of its own: neither its styles nor its scripts reach the notebook."""
        if self.view is None:
            return f"<pre>{html.escape(repr(self))}</pre>"
        from hotlap.pipeline import REPORT

        page = Path(self.run, REPORT).read_text(encoding="utf-8")
        style = f"width:100%;height:{_HEIGHT_PX}px;border:0"
        return f'<iframe style="{style}" sandbox="allow-scripts" srcdoc="{html.escape(page)}"></iframe>'


def profile(train: Callable[[], Any], *, name: str = "notebook", out: str | None = None) -> Profiled:
    """Run `train()` to its end and see where the time of its steps goes.

    Loaders, models and optimizers that were built before are seen as well. An exception of `train` is raised when the
    report is written; Ctrl-C, or a notebook's stop, ends `train` and gives the profile of what was seen.
    """
    outer = already_inside()
    if outer:
        train()
        reason = "this already runs under hotlap: its steps are in the report of the first."
        return Profiled(Profile(Path(outer).parent, 0, None, reason, "hotlap report last"))
    if not _under_way.acquire(blocking=False):
        raise UsageError(
            "another hotlap.profile is under way in this process.", "profile one after the other"
        )
    try:
        return _profile(train, Job((), str(Path.cwd()), name), out)
    finally:
        _under_way.release()


def _profile(train: Callable[[], Any], job: Job, out: str | None) -> Profiled:
    run = runfolder.create_run(job.name, out)
    host = inspect_host()
    codec.write_json(run / "job.json", job)
    codec.write_json(run / "host.json", host)
    began, origin = time.monotonic(), time.perf_counter_ns()
    failed: BaseException | None = None
    with _listening(runfolder.probe_folder(run), origin) as looks:
        try:
            train()
        except KeyboardInterrupt as stop:
            failed = stop
        except Exception as error:
            failed = error
    interrupted = isinstance(failed, KeyboardInterrupt)
    code = _INTERRUPTED if interrupted else int(failed is not None)
    outcome = Outcome(code, time.monotonic() - began, time.perf_counter_ns(), interrupted)
    profiled = Profiled(concluded(run, job, host, outcome, origin, looks))
    if failed is not None and not interrupted:
        raise failed
    return profiled


@contextmanager
def _listening(folder: Path, origin: int) -> Iterator[LookRecord]:
    """Taps in place, and a thread that looks at memory and cores as the parent of a job does."""
    from hotlap.probe.attach import attach

    boundary.faults.clear()
    note_process(folder, torch=True)
    session = attach(folder, origin, [])
    _meet_frameworks(session)
    observer = Observer(folder, None, steady_from, lambda _: None)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK_EVERY_S):
            boundary.attempt(observer.tick, os.getpid())

    watcher = threading.Thread(target=watch, name="hotlap", daemon=True)
    watcher.start()
    try:
        yield observer.looks
    finally:
        over.set()
        watcher.join()
        observer.close()
        session.detach()


def _meet_frameworks(session: Any) -> None:
    """Those that are imported by now; a job's own are met when they come."""
    for framework in units(integrations, Integration):  # type: ignore[type-abstract]
        for module in framework.modules:
            if module in sys.modules:
                boundary.attempt(framework.attach, sys.modules[module], session)
    for name in ("torch._dynamo.callback", "torch._dynamo.trace_rules"):
        if name in sys.modules:
            from hotlap.probe.taps import compiler

            boundary.attempt(compiler.install, session, sys.modules[name])


# `%load_ext hotlap` for IPython and Jupyter: `%%hotlap profile` profiles what stands in the cell.


_USAGE = "%%hotlap profile [NAME]"


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext hotlap`."""

    def hotlap(line: str, cell: str) -> Profiled | None:
        """%%hotlap profile [NAME]: run the cell, and show where the time of its training steps goes."""
        try:
            return _profiled(shell, shlex.split(line), cell)
        except HotlapError as error:
            print(f"hotlap: {error}")
            return None

    shell.register_magic_function(hotlap, "cell", "hotlap")


def _profiled(shell: Any, words: list[str], cell: str) -> Profiled:
    if not words or words[0] != "profile" or len(words) > 2:
        raise UsageError(f"'%%hotlap {' '.join(words)}' is not known.", f"write {_USAGE}")
    text = shell.transform_cell(cell)
    file = shell.compile.cache(
        text, shell.execution_count, raw_code=cell
    )  # its lines can be looked up by this name
    code = shell.compile(shell.transform_ast(shell.compile.ast_parse(text, filename=file)), file, "exec")
    # As %%time does: a cell that ran a cell would lose its own result.
    return profile(lambda: exec(code, shell.user_ns), name=words[1] if len(words) > 1 else "notebook")
