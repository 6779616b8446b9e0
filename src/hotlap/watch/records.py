"""Where looks at a posterior go: a short history, a file of lines, a picture, loggers, and the run's journal."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hotlap.facts import private
from hotlap.launch.environment import FOLDER
from hotlap.watch.budget import Budget
from hotlap.watch.collapse import ACTIVE_VARIANCE, Posterior, State, Verdict
from hotlap.watch.monitors import Gravity, Word

LINES, PICTURE = "posterior.jsonl", "posterior.png"
_MOST_LOOKS = 256  # of the history, and twice as many lines of the file
_DIGITS = 4
_GRAVITY = {
    State.HEALTHY: Gravity.OK,
    State.COLLAPSING: Gravity.WARNING,
    State.COLLAPSED: Gravity.CRITICAL,
}


class Records:
    """Of one monitor. Both history and file are thinned to every second look whenever they are full."""

    def __init__(self, folder: Path | str | None, writer: Any) -> None:
        self.history: list[Posterior] = []
        self._folder = Path(folder) if folder is not None else run_folder()
        self._writer = writer
        self._loggers: list[Any] = []
        self._lines = 0
        self._stride = 1
        self._seen = 0

    def offer(self, folder: Path | None, loggers: Iterable[Any]) -> None:
        """What Lightning knows; a folder that was asked for stays."""
        self._folder = self._folder or folder
        self._loggers = list(loggers)

    def add(self, seen: Posterior, verdict: Verdict, budget: Budget) -> None:
        if self._seen % self._stride == 0:
            self.history.append(seen)
            if len(self.history) >= _MOST_LOOKS:
                del self.history[1::2]
                self._stride *= 2
        self._seen += 1
        self._write_line(seen, verdict)
        self._log(seen)
        journal = process_journal()
        if journal is not None:
            self._tell(journal, seen, verdict, budget)

    def plot(self, verdict: Verdict) -> None:
        """Draws only where there is a place for it."""
        boards = [each for each in self._boards() if hasattr(each, "add_figure")]
        if self._folder is None and not boards:
            return

        figure = posterior_figure(self.history, verdict)
        if self._folder is not None:
            write_png(figure, self._folder / PICTURE)
        for board in boards:
            board.add_figure("posterior", figure, self.history[-1].step, close=False)

    def close(self) -> None:
        journal = process_journal()
        if journal is not None:
            journal.write()

    def _boards(self) -> Iterable[Any]:
        if self._writer is not None:
            yield self._writer
        for logger in self._loggers:
            yield getattr(logger, "experiment", None)

    def _write_line(self, seen: Posterior, verdict: Verdict) -> None:
        if self._folder is None:
            return
        path = self._folder / LINES
        with contextlib.suppress(OSError):  # a full disk does not end a training
            if self._lines == 0:
                private.make_folder(self._folder)
                path.unlink(missing_ok=True)
            with open(path, "a", encoding="utf-8", opener=private.opener) as file:
                file.write(json.dumps(_plain(seen, verdict)) + "\n")
            self._lines += 1
            if self._lines >= 2 * _MOST_LOOKS:
                self._lines = _thin(path)

    def _log(self, seen: Posterior) -> None:
        figures = {f"posterior/{name}": value for name, value in scalars(seen).items() if value is not None}
        if self._writer is not None:
            for name, value in figures.items():
                self._writer.add_scalar(name, value, seen.step)
        for logger in self._loggers:
            logger.log_metrics(figures, step=seen.step)

    def _tell(self, journal: Journal, seen: Posterior, verdict: Verdict, budget: Budget) -> None:
        figures = {**scalars(seen), "units": len(seen.variances), "ceiling": seen.ceiling}
        points = [(each.step, each.mutual_information) for each in self.history]
        journal.tell(
            "posterior", Word(verdict.state, _GRAVITY[verdict.state], verdict.since, figures, points)
        )
        journal.budget("posterior", budget)
        journal.write_if_due()


def scalars(seen: Posterior) -> dict[str, float | None]:
    """The figures that are drawn over the steps."""
    return {
        "kl": seen.total_kl,
        "active": seen.active,
        "mutual_information": seen.mutual_information,
        "gap": seen.gap,
    }


def _plain(seen: Posterior, verdict: Verdict) -> Mapping[str, Any]:
    rounded = {
        name: [float(f"{value:.{_DIGITS}g}") for value in getattr(seen, name)] for name in ("kl", "variances")
    }
    told = {"state": verdict.state, "since": verdict.since, "dimensions": list(verdict.dimensions)}
    plain = {
        "step": seen.step,
        "rows": seen.rows,
        **scalars(seen),
        "verdict": {**told, "reason": verdict.reason},
    }
    return {**plain, "total_kl": seen.total_kl, "kl": rounded["kl"], "variances": rounded["variances"]}


def _thin(path: Path) -> int:
    kept = path.read_text(encoding="utf-8").splitlines(keepends=True)[1::2]
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    private.write(draft, "".join(kept).encode())
    draft.replace(path)
    return len(kept)


# What the monitors of this process say, in one small file that a look from outside finds: `<pid>.watch.json`.
#
# It is written at most once a second, whole or not at all. There is a journal only in a process that runs
# under hotlap.


ENDING = ".watch.json"
_WRITE_EVERY_S = 1.0


class Journal:
    """The latest word of each monitor."""

    def __init__(self, folder: Path) -> None:
        self.steps: int | None = None
        self.notes: Mapping[str, Any] = {}
        self._folder = folder
        self._told: dict[str, Word] = {}
        self._budgets: dict[str, Budget] = {}
        self._written = -math.inf

    def tell(self, monitor: str, word: Word) -> None:
        """From now on, this is what the monitor says."""
        self._told[monitor] = word

    def budget(self, owner: str, budget: Budget) -> None:
        self._budgets[owner] = budget

    def write_if_due(self) -> None:
        if time.monotonic() - self._written >= _WRITE_EVERY_S:
            self.write()

    def write(self) -> None:
        self._written = time.monotonic()
        budgets = {id(each): each for each in self._budgets.values()}.values()
        body = {
            "schema": 1,
            "pid": os.getpid(),
            "written": time.time(),
            "cost": {
                "share": sum(each.share for each in budgets),
                "spent": sum(each.spent_share or 0.0 for each in budgets),
            },
            "steps": self.steps,
            "notes": dict(self.notes),
            "monitors": {name: asdict(word) for name, word in self._told.items()},
        }
        path = self._folder / f"{os.getpid()}{ENDING}"
        draft = self._folder / f".{path.name}"
        with contextlib.suppress(OSError, ValueError):  # the run is over and its folder gone, or a full disk
            private.write(draft, json.dumps(body, default=str).encode())
            draft.replace(path)


_journals: dict[tuple[str, int], Journal] = {}


def process_journal() -> Journal | None:
    """The one of this process; None where it does not run under hotlap."""
    folder = os.environ.get(FOLDER)
    if not folder or not Path(folder).is_dir():
        return None
    return _journals.setdefault((folder, os.getpid()), Journal(Path(folder)))


def run_folder() -> Path | None:
    """Of the run that this process belongs to."""
    folder = os.environ.get(FOLDER)
    return Path(folder).parent if folder and Path(folder).is_dir() else None


# The picture of a posterior: what z says over the steps, and every dimension at the last look.


_COLOURS = {State.HEALTHY: "tab:green", State.COLLAPSING: "tab:orange", State.COLLAPSED: "tab:red"}


def posterior_figure(history: Sequence[Posterior], verdict: Verdict) -> Any:
    """A figure of matplotlib, made without pyplot: the script's own figures and backend are left alone."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6), layout="constrained")
    (information, units), (divergence, variances) = figure.subplots(2, 2)
    _draw_information(information, history)
    _draw_units(units, history)
    last = history[-1]
    divergence.bar(range(len(last.kl)), sorted(last.kl, reverse=True), width=1.0)
    divergence.set_title(f"KL per dimension, sorted, step {last.step}", fontsize="small")
    ordered = sorted(last.variances, reverse=True)
    variances.bar(range(len(ordered)), [max(each, 1e-6) for each in ordered], width=1.0)
    variances.set_yscale("log")
    variances.axhline(ACTIVE_VARIANCE, color="k", linestyle=":", linewidth=1)
    variances.set_title("variance of the posterior mean, sorted", fontsize="small")
    figure.suptitle(f"{verdict.state}: {verdict.reason}", color=_COLOURS[verdict.state], fontsize="medium")
    return figure


def _draw_information(axes: Any, history: Sequence[Posterior]) -> None:
    steps = [each.step for each in history]
    axes.plot(steps, [each.mutual_information for each in history], label="mutual information (nats)")
    axes.plot(steps, [each.ceiling for each in history], "k:", linewidth=1, label="ln(rows)")
    axes.legend(fontsize="small", loc="lower left")
    axes.set_ylim(bottom=0.0)
    seen = [(each.step, each.gap) for each in history if each.gap is not None]
    if seen:
        beside = axes.twinx()
        beside.plot(*zip(*seen, strict=True), color="tab:orange", label="loss gap under shuffled z")
        beside.legend(fontsize="small", loc="lower right")


def _draw_units(axes: Any, history: Sequence[Posterior]) -> None:
    steps = [each.step for each in history]
    axes.plot(steps, [each.active for each in history], label="active units")
    axes.plot(steps, [each.total_kl for each in history], label="KL (nats)")
    axes.set_ylim(bottom=0.0)
    axes.legend(fontsize="small")


def write_png(figure: Any, path: Path) -> None:
    """Whole or not at all: a reader may look at any time."""
    private.make_folder(path.parent)
    draft = path.with_name(f".{path.name}.draft")
    private.write(draft, b"")
    figure.savefig(draft, format="png", dpi=90)
    draft.replace(path)
