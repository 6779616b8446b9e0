"""Profile an unmodified training command: where each step's time goes, at which line, and what makes it faster.

hotlap profile train.py --epochs 1
hotlap profile --experiments 2m train.py --epochs 1
hotlap profile -m package.train --epochs 1
hotlap profile -- torchrun --nproc_per_node 2 train.py
"""

from __future__ import annotations

import argparse
import sys
import time
from math import inf

from hotlap.cli._output import add_output_options, check_json_target, export, wanted_exports, write_json
from hotlap.cli._plans import read_seconds
from hotlap.errors import UsageError, visible

TAKES_COMMAND = True
USAGE = "hotlap profile [options] SCRIPT|-m MODULE|-- LAUNCHER [arguments ...]"
_STEPS = 200
_FEW = (12, 60.0)  # steps, and seconds: where steps are long, so many in such a time are enough
_EXPERIMENTS, _OFF = "60s", "off"
_SAY_EVERY_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--steps",
        type=int,
        metavar="N",
        help=f"end the job after N steady steps (default {_STEPS}, or after a minute with at least {_FEW[0]})",
    )
    parser.add_argument("--full", action="store_true", help="let the job run to its end")
    parser.add_argument("--out", metavar="DIR", help="the run folder (default .hotlap/runs/<time>-<name>)")
    parser.add_argument("--name", help="what the run is called (default: the script's name)")
    parser.add_argument(
        "--experiments",
        metavar="TIME|off",
        help=f"after the window, try changes on the running job for at most this long (default {_EXPERIMENTS}; "
        "none with --full)",
    )
    parser.add_argument(
        "--peak-flops",
        metavar="FLOPS",
        help="dense FLOP/s of the device in the job's precision, such as 312e12, for MFU (default: known by its name, "
        "measured on a CPU)",
    )
    add_output_options(parser)


def run(options: argparse.Namespace) -> int:
    from hotlap.launch.command import to_job
    from hotlap.launch.environment import already_inside
    from hotlap.pipeline import profile, run_alone

    targets = wanted_exports(options)
    job = to_job(options.command_words, options.name)
    steps, experiments_s = _wanted_steps(options), _wanted_experiments(options)
    peak_flops = _given_peak(options.peak_flops)
    say = _Progress()
    if already_inside():
        say.line(
            "this already runs under hotlap: the command goes on without a second probe.\n"
            "  -> its steps are in the report of the first"
        )
        return run_alone(job)
    check_json_target(options.json)
    say.line(f"profiling {job.shown}")
    result = profile(
        job,
        steps,
        options.out,
        say,
        few=_FEW if options.steps is None else None,
        experiments_s=experiments_s,
        peak_flops=peak_flops,
        quiet_stdout=options.json == "-",
    )
    if result.view is None:
        say.line(f"{result.reason}\n  -> {result.remedy}")
        if options.json:
            write_json(
                options.json, {"schema": 1, "verdict": None, "reason": result.reason, "run": str(result.run)}
            )
        return result.exit_code
    if options.json:
        write_json(options.json, result.view)
    export(result.view, result.run, targets)
    if options.json != "-":
        from hotlap.report.renderers.terminal import show

        show(result.view)
    return result.exit_code


def _wanted_steps(options: argparse.Namespace) -> int | None:
    if options.full and options.steps is not None:
        raise UsageError("--full and --steps exclude each other.", "give one of them")
    if options.steps is not None and options.steps < 1:
        raise UsageError(f"--steps is {options.steps}.", "give a whole number from 1 on")
    return None if options.full else options.steps or _STEPS


def _wanted_experiments(options: argparse.Namespace) -> float:
    """Seconds for experiments; 0 where they are off."""
    text = options.experiments
    if text == _OFF or (text is None and options.full):
        return 0.0
    seconds = read_seconds(text or _EXPERIMENTS)
    if not seconds:
        raise UsageError(f"--experiments {text} is no time.", "write 60s, 2m or off")
    if options.full:
        raise UsageError(
            "--experiments follow a window of steps, --full has none.", "give --steps N instead of --full"
        )
    return seconds


def _given_peak(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        flops = float(text)
    except ValueError:
        flops = 0.0
    if not 0.0 < flops < inf:
        raise UsageError(f"--peak-flops {text} is no rate.", "give FLOP/s as a number: --peak-flops 312e12")
    return flops


class _Progress:
    """Lines on standard error: the script's own output stays its own."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def __call__(self, text: str) -> None:
        if sys.stderr.isatty() and time.monotonic() - self._said > _SAY_EVERY_S:
            self._said = time.monotonic()
            self.line(text)

    def line(self, text: str) -> None:
        print(f"hotlap: {visible(text)}", file=sys.stderr, flush=True)
