"""Try the fixes that the diagnosis proposes in short isolated trials, keep what pays, write plan.yaml.

hotlap tune train.py --epochs 1
hotlap tune --budget 10m --allow rounding train.py
hotlap tune --goal memory --memory-limit 16GB -- torchrun --nproc_per_node 2 train.py
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hotlap.cli._output import add_output_options, check_json_target, export, wanted_exports, write_json
from hotlap.cli._plans import STEPS, add_budget_option, add_out_option, allowed_numerics, read_budget
from hotlap.errors import UsageError, visible
from hotlap.units import duration, rate

if TYPE_CHECKING:
    from hotlap.facts.trial import Figures, Trial
    from hotlap.facts.verdict import KnobVerdict
    from hotlap.search.candidates import Said, SearchBudget


TAKES_COMMAND = True
USAGE = "hotlap tune [options] SCRIPT|-m MODULE|-- LAUNCHER [arguments ...]"
_BYTES = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--goal",
        choices=("speed", "balanced", "memory"),
        default="speed",
        help="samples or tokens a second; the same over the root of peak memory, so that twice the memory must "
        "bring 41%% more; or the least memory (default speed)",
    )
    add_budget_option(parser, "5m")
    parser.add_argument("--memory-limit", metavar="SIZE", help="drop what needs more, such as 16GB")
    parser.add_argument(
        "--keep-batch", action="store_true", help="an optimizer step sees as many samples as before"
    )
    parser.add_argument(
        "--allow", default="", metavar="WORDS", help="what may change of the numbers: rounding,statistical"
    )
    add_out_option(parser, ".hotlap/tune/<name>")
    add_output_options(parser)


def run(options: argparse.Namespace) -> int:
    from hotlap.launch.command import to_job
    from hotlap.pipeline import write_report
    from hotlap.pipeline.outcome import view_of_search
    from hotlap.pipeline.tune import tune
    from hotlap.plan.catalogue import all_knobs
    from hotlap.ports.knob import UNCHANGED
    from hotlap.report.renderers.terminal import show
    from hotlap.search.candidates import Wish

    targets = wanted_exports(options)
    job = to_job(options.command_words, None, "tune")
    check_json_target(options.json)
    wish = Wish(
        options.goal,
        frozenset({*UNCHANGED, *allowed_numerics(options.allow)}),
        options.keep_batch,
        read_bytes(options.memory_limit) if options.memory_limit else None,
    )
    budget = read_budget(options.budget)
    quiet = options.json == "-"
    say = Teller(budget, say_nothing if quiet else say_on_stderr)
    folder, _ = tune(job, all_knobs(), wish, budget, STEPS, options.out, say.said(), say_nothing)
    view = view_of_search(folder)
    write_report(folder, view)
    if options.json:
        write_json(options.json, view)
    export(view, folder, targets)
    if not quiet:
        show(view)
    return 0


def read_bytes(text: str) -> int:
    """`16GB`, `800MiB`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]I?B)?", text.strip().upper())
    if not found:
        raise UsageError(f"--memory-limit {text} is no size.", "write 16GB or 800MiB")
    return int(float(found[1]) * _BYTES[found[2] or ""])


# How `hotlap tune` tells of its progress: a line for each trial and each verdict, on standard error.


WIDTH = 100
_SETTINGS = 30


class Teller:
    """Holds every trial against the first one, which is the original script."""

    def __init__(self, budget: SearchBudget, say: Callable[[str], None]) -> None:
        self._budget = budget
        self._say = say
        self._started = time.monotonic()
        self._made = 0
        self._first: Figures | None = None

    def said(self) -> Said:
        from hotlap.search.candidates import Said

        return Said(self.trial, self.verdict, lambda note: self._say(cut(f"  {note}")))

    def trial(self, done: Trial) -> None:
        self._first = self._first or done.figures
        self._made += 1
        self._say(trial_line(done, self._times(done.figures), self._left()))

    def verdict(self, found: KnobVerdict) -> None:
        self._say(verdict_line(found))

    def _times(self, reached: Figures | None) -> float | None:
        """How often as fast as the first, both in one count."""
        from hotlap.facts.trial import alike

        if self._first is None or reached is None:
            return None
        (first,), (now,) = alike([self._first], [reached])
        return now.throughput / first.throughput

    def _left(self) -> str:
        if self._budget.trials is not None:
            return f"{max(0, self._budget.trials - self._made)} left"
        if self._budget.seconds is None:
            return ""
        return f"{max(0.0, self._budget.seconds - (time.monotonic() - self._started)):.0f} s left"


def trial_line(trial: Trial, times: float | None, left: str) -> str:
    """Number, setting, ms a step, throughput, how often as fast as the first, what it took, what is left."""
    figures = trial.figures
    result = (
        f"{duration(figures.step_ms / 1e3):>8}/step {rate(figures.throughput):>8} {figures.counts}/s"
        if figures
        else trial.status.value
    )
    gain = f"{times:.2f}x" if times is not None else ""
    named = _named(trial.plan.settings)
    return cut(
        f"trial {trial.number:3}  {named:{_SETTINGS}} {result:<33} {gain:>6} {trial.seconds:3.0f} s  {left}"
    )


def verdict_line(found: KnobVerdict) -> str:
    """What becomes of a setting, with its gain and why."""
    from hotlap.facts.rewrite import shown_setting

    gain = f", gain {found.gain.value:+.0%}" if found.gain else ""
    reason = f" ({found.reason})" if found.reason else ""
    return cut(f"  {found.ruling.value}: {shown_setting(found.knob, found.setting)}{gain}{reason}")


def _named(settings: Mapping[str, Any]) -> str:
    from hotlap.facts.rewrite import shown_setting

    named = " ".join(shown_setting(*pair) for pair in settings.items()) or "the original script"
    return named if len(named) <= _SETTINGS else f"{named[: _SETTINGS - 3]}..."


def cut(line: str) -> str:
    """A progress line that does not wrap; the outcome says all of it."""
    line = line.rstrip()
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."


def say_on_stderr(line: str) -> None:
    print(visible(line), file=sys.stderr, flush=True)


def say_nothing(_: str) -> None:
    """Standard output holds JSON, and whoever reads it wants nothing else."""
