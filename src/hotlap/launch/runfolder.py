"""The run folder `.hotlap/runs/<time>-<name>/`: made before the job starts, so that a folder that cannot be written
is told before anything runs."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable
from pathlib import Path

from hotlap.errors import FactError, UsageError
from hotlap.facts import codec, private
from hotlap.facts.job import Job
from hotlap.launch.command import script_of
from hotlap.probe import control

HOME = ".hotlap"
TRACE = "trace.json"
PLAN, APPLIED, CORRECTED = "plan.yaml", "applied.json", "corrected.yaml"
LAST_LOOK = "watch.json"
_PICTURES = ("posterior.jsonl", "posterior.png")  # of monitors in the script
_PROBE = "probe"
_OURS = re.compile(
    r"control|pauses|seen\.jsonl|plan\.json|blocks\.jsonl|\.?\d+\.(marks|samples|steps|(trace\.|fitted\.|witness\.|watch\.)?json)(\.\d+)?"
)
_FACTS = ("job.json", "host.json")
_OF_A_PROFILE = ("timeline.arrow", "rewrites.json", "diagnosis.json", "report.html", "log.txt", TRACE)
_EXPORTED = ("metrics.prom",)
_RESULTS = (*_OF_A_PROFILE, PLAN, APPLIED, CORRECTED, LAST_LOOK, *_PICTURES, *_EXPORTED)


def create_run(name: str, out: str | None) -> Path:
    """An empty folder for a run, with room for what the probe writes."""
    folder = Path(out) if out else _fresh(Path(HOME) / "runs", name)
    try:
        probe = folder / _PROBE
        _refuse_what_is_not_ours(probe)
        private.make_folder(probe)
        if not out:
            _keep_out_of_git(Path(HOME))
        for old in (*probe.iterdir(), *_results_of_another_run(folder)):
            old.unlink()
        control.create(probe)
    except OSError as error:
        raise UsageError(
            f"the run folder {folder} cannot be written: {error.strerror}.", "choose another with --out DIR"
        ) from None
    return folder.resolve()


def folder_at_home(*parts: str) -> Path:
    """A folder in `.hotlap/` that several commands may come back to, kept out of git like the runs."""
    folder = Path(HOME, *parts)
    try:
        private.make_folder(folder)
        _keep_out_of_git(Path(HOME))
    except OSError as error:
        raise UsageError(
            f"the folder {folder} cannot be written: {error.strerror}.", "choose another with --out DIR"
        ) from None
    return folder.resolve()


def probe_folder(run: Path) -> Path:
    return run / _PROBE


def keep_trace(run: Path, pids: Iterable[int]) -> None:
    """The operators' trace of the first rank that has one, for Perfetto."""
    traces = (run / _PROBE / f"{pid}.trace.json" for pid in pids)
    found = next((trace for trace in traces if trace.is_file()), None)
    if found is not None:
        private.close(found)
        found.replace(run / TRACE)


def remove_probe_files(run: Path) -> None:
    """The timeline holds all that matters of them. An orphan of the job may still be writing: it is left alone."""
    with contextlib.suppress(OSError):
        for path in (run / _PROBE).iterdir():
            path.unlink(missing_ok=True)
        (run / _PROBE).rmdir()


def remove_run(run: Path) -> None:
    """Of a job that could not be started: there is nothing to keep."""
    remove_probe_files(run)
    with contextlib.suppress(OSError):
        for name in (*_FACTS, *_RESULTS):
            (run / name).unlink(missing_ok=True)
        run.rmdir()


def find_run(text: str) -> Path:
    """A run by its folder, by the end of its name, or `last`."""
    if Path(text).is_dir():
        return Path(text)
    runs = sorted(path for path in (Path(HOME) / "runs").glob("*") if path.is_dir())
    matching = runs if text == "last" else [run for run in runs if run.name.endswith(text)]
    if not matching:
        known = f"the newest is {runs[-1]}" if runs else "record one: hotlap profile train.py"
        raise UsageError(f"there is no run '{text}'.", known)
    return matching[-1]


def profile_of(job: Job) -> Path | None:
    """The newest stored profile of the same script; options of the script may differ."""
    runs = sorted((Path(HOME) / "runs").glob("*"), reverse=True)
    stored = (run for run in runs if (run / "diagnosis.json").is_file() and (run / "job.json").is_file())
    return next((run for run in stored if _is_of(run, job)), None)


def _is_of(run: Path, job: Job) -> bool:
    try:
        known: Job = codec.read_json(run / "job.json", Job)
    except FactError:
        return False
    return script_of(known.argv) == script_of(job.argv)


def _refuse_what_is_not_ours(probe: Path) -> None:
    """With --out DIR the folder may hold anything, and what lies in ours is deleted."""
    alien = (
        [each.name for each in probe.iterdir() if not _OURS.fullmatch(each.name)] if probe.is_dir() else []
    )
    if alien:
        raise UsageError(
            f"{probe} holds '{alien[0]}', which is no file of hotlap's.", "choose another with --out DIR"
        )


def _results_of_another_run(folder: Path) -> list[Path]:
    """What a run before this one left: were this one to fail, they would be shown as its own."""
    is_run = all((folder / name).is_file() for name in _FACTS)
    return [path for name in _RESULTS if (path := folder / name).is_file()] if is_run else []


def _fresh(parent: Path, name: str) -> Path:
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name) or "job"
    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder, count = parent / f"{stamp}-{plain}", 1
    while folder.exists():
        count += 1
        folder = parent / f"{stamp}-{plain}-{count}"
    return folder


def _keep_out_of_git(home: Path) -> None:
    ignore = home / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
