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
from pathlib import Path
from typing import TYPE_CHECKING

from hotlap.cli._output import add_json_option, check_json_target, write_json
from hotlap.cli._plans import allowed_numerics
from hotlap.errors import UsageError

if TYPE_CHECKING:
    from hotlap.facts.trial import Trial
    from hotlap.facts.verdict import Verdict
    from hotlap.pipeline.search import Budget, Said

TAKES_COMMAND = True
USAGE = "hotlap tune [options] SCRIPT|-m MODULE|-- LAUNCHER [arguments ...]"
_UNITS = {"s": 1, "m": 60, "h": 3600}
_BYTES = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
_STEPS = 60  # steady ones of a trial: several trials tell more than a long one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--goal", choices=("speed", "memory"), default="speed")
    parser.add_argument(
        "--budget",
        default="5m",
        metavar="TIME|TRIALS",
        help="5m, 90s, 1h, or a number of trials (default 5m)",
    )
    parser.add_argument("--memory-limit", metavar="SIZE", help="drop what needs more, such as 16GB")
    parser.add_argument("--keep-batch", action="store_true", help="leave the batch size alone")
    parser.add_argument(
        "--allow", default="", metavar="WORDS", help="what may change of the numbers: rounding,statistical"
    )
    parser.add_argument("--out", metavar="DIR", help="the folder of the search (default .hotlap/tune/<name>)")
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    from hotlap.launch.command import to_job
    from hotlap.pipeline.trying import tune
    from hotlap.ports.knob import Numerics
    from hotlap.propose.search import Wish
    from hotlap.report.tuned import text, tuning_view
    from hotlap.seams.catalogue import all_knobs

    job = to_job(options.command_words, None, "tune")
    check_json_target(options.json)
    wish = Wish(
        options.goal,
        frozenset({Numerics.BITWISE, *allowed_numerics(options.allow)}),
        options.keep_batch,
        read_bytes(options.memory_limit) if options.memory_limit else None,
    )
    budget = read_budget(options.budget)
    quiet = options.json == "-"
    folder, tuning = tune(job, all_knobs(), wish, budget, _STEPS, options.out, _said(budget), _ignore)
    shown = _shown(folder)
    if options.json:
        write_json(options.json, tuning_view(tuning, str(folder), job.shown))
    if not quiet:
        print(text(tuning, shown, job.shown.removeprefix("python ")))
    return 0


def read_budget(text: str) -> Budget:
    """`5m`, `90s`, `1h`, or a number of trials."""
    from hotlap.pipeline.search import Budget

    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if found:
        return Budget(seconds=float(found[1]) * _UNITS[found[2]])
    if text.strip().isdigit() and int(text) > 0:
        return Budget(trials=int(text))
    raise UsageError(f"--budget {text} is neither a time nor a number of trials.", "write 5m, 90s or 20")


def read_bytes(text: str) -> int:
    """`16GB`, `800MiB`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]I?B)?", text.strip().upper())
    if not found:
        raise UsageError(f"--memory-limit {text} is no size.", "write 16GB or 800MiB")
    return int(float(found[1]) * _BYTES[found[2] or ""])


def _said(budget: Budget) -> Said:
    from hotlap.pipeline.search import Said
    from hotlap.report.tuned import trial_line

    started = time.monotonic()

    def trial(done: Trial) -> None:
        figures = done.figures
        result = f"{figures.throughput:,.4g} {figures.counts}/s" if figures else done.status.value
        left = ""
        if budget.seconds is not None:
            left = f"  [{max(0.0, budget.seconds - (time.monotonic() - started)):.0f} s left]"
        _say(trial_line(done.number, done.plan.settings, result, done.seconds, left))

    def verdict(found: Verdict) -> None:
        gain = f"{found.gain.value:+.0%}" if found.gain else "-"
        reason = f" ({found.reason})" if found.reason else ""
        _say(f"  {found.ruling.value}: {found.knob}={found.setting}, gain {gain}{reason}")

    return Said(trial, verdict, lambda note: _say(f"  {note}"))


def _shown(folder: Path) -> str:
    here = Path.cwd()
    return str(folder.relative_to(here) if folder.is_relative_to(here) else folder)


def _ignore(_: str) -> None:
    """A trial's own progress is not shown: it is over soon."""


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
