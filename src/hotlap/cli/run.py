"""Train with a plan applied; the script is untouched, and what does not work on it is left out and told.

hotlap run --plan plan.yaml train.py --epochs 10
hotlap run --preset balanced --set num-workers=4 train.py
hotlap run --plan plan.yaml -- torchrun --nproc_per_node 2 train.py
hotlap run --watch train.py --epochs 10
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hotlap.cli._output import (
    add_output_options,
    check_json_target,
    export,
    leave_numpy_out,
    wanted_exports,
    write_json,
)
from hotlap.cli._plans import (
    add_plan_option,
    add_plan_options,
    allowed_numerics,
    overridden,
    preset_plan,
    refuse_allow_without_preset,
)
from hotlap.errors import UsageError, visible

if TYPE_CHECKING:
    from hotlap.facts.job import Job
    from hotlap.facts.plan import Plan
    from hotlap.launch.planned import Ran
    from hotlap.ports.knob import Knob

TAKES_COMMAND = True
USAGE = "hotlap run [options] SCRIPT|-m MODULE|-- LAUNCHER [arguments ...]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_plan_option(parser)
    add_plan_options(parser)
    parser.add_argument(
        "--skip-bad-samples",
        type=int,
        default=0,
        metavar="N",
        help="leave out up to N samples that cannot be read (default 0: the first ends the run)",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="end the run with exit code 3 where the audit finds that a setting changed the data",
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="monitor losses, gradients, speed and memory: look with hotlap watch last",
    )
    parser.add_argument("--out", metavar="DIR", help="the run folder (default .hotlap/runs/<time>-<name>)")
    parser.add_argument("--name", help="what the run is called (default: the script's name)")
    add_output_options(parser)


def run(options: argparse.Namespace) -> int:
    from hotlap import pipeline
    from hotlap.launch.command import to_job
    from hotlap.launch.environment import already_inside
    from hotlap.plan.catalogue import all_knobs
    from hotlap.sameness.breach import EXIT_CODE, STRICT

    targets = wanted_exports(options)
    job = to_job(options.command_words, options.name, "run")
    plan, bounds = _wanted_plan(options, job, all_knobs())
    if options.skip_bad_samples < 0:
        raise UsageError(
            f"--skip-bad-samples is {options.skip_bad_samples}.", "give a whole number from 0 on"
        )
    if already_inside():
        _say("hotlap: this already runs under hotlap: the command goes on without a second plan.")
        return pipeline.run_alone(job)
    check_json_target(options.json)
    if options.watch:
        _say("hotlap: look at it from another shell: hotlap watch last")
    folder, ran = pipeline.run(
        job,
        plan,
        options.out,
        _say,
        options={
            "skip_bad_samples": options.skip_bad_samples,
            "bounds": bounds,
            STRICT: options.strict,
        },
        quiet_stdout=options.json == "-",
        watch=options.watch,
    )
    _tell(ran, folder)
    if options.json or targets:
        from hotlap.launch.planned import facts_of

        facts = {**facts_of(ran), "run": str(folder)}
        if options.json:
            write_json(options.json, facts)
        export({"kind": "run", "command": job.shown, **facts}, folder, targets)
    return EXIT_CODE if options.strict and ran.breaches else ran.outcome.exit_code


def _wanted_plan(
    options: argparse.Namespace, job: Job, knobs: Mapping[str, Knob]
) -> tuple[Plan, dict[str, list[str]]]:
    """The plan, and what each of a preset's settings may do to the numbers; what was asked for by name may do all."""
    from hotlap.facts.plan import Plan
    from hotlap.launch.runfolder import profile_of
    from hotlap.plan.file import read_plan
    from hotlap.ports.knob import UNCHANGED

    refuse_allow_without_preset(options)
    if options.plan and options.preset:
        raise UsageError(
            "--plan and --preset exclude each other.", "give one of them, and --set for the rest"
        )
    bounds: dict[str, list[str]] = {}
    plan = Plan()
    if options.plan:
        plan = read_plan(Path(options.plan), knobs)
    elif options.preset:
        leave_numpy_out(options)
        plan = preset_plan(options, profile_of(job), knobs)
        bounds = {key: [*UNCHANGED, *allowed_numerics(options.allow)] for key in plan.settings}
    by_name = {word.partition("=")[0] for word in options.set}
    return overridden(plan, options.set, knobs), {
        key: each for key, each in bounds.items() if key not in by_name
    }


def _tell(ran: Ran, folder: Path) -> None:
    from hotlap.launch.runfolder import APPLIED
    from hotlap.plan.record import summary

    here = Path.cwd()
    shown = folder.relative_to(here) if folder.is_relative_to(here) else folder
    for line in summary(ran.records, ran.step_downs, ran.starts, str(shown)):
        _say(line)
    if ran.breaches:
        knobs = ", ".join(dict.fromkeys(each.knob for each in ran.breaches))
        _say(f"hotlap: NOT PROVED: {knobs} served other data than the script's own; see {APPLIED} there")


def _say(line: str) -> None:
    print(visible(line), file=sys.stderr, flush=True)
