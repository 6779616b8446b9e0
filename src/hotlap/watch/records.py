"""Where looks at a posterior go: a short history, a file of lines, a picture, loggers, and the run's journal."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hotlap.watch.budget import Budget
from hotlap.watch.collapse import Posterior, State, Verdict
from hotlap.watch.journal import Journal, process_journal, run_folder
from hotlap.watch.word import Gravity, Word

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
        from hotlap.watch.plots import posterior_figure, write_png

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
                self._folder.mkdir(parents=True, exist_ok=True)
                path.unlink(missing_ok=True)
            with path.open("a", encoding="utf-8") as file:
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
    draft.write_text("".join(kept), encoding="utf-8")
    draft.replace(path)
    return len(kept)
