"""Keep a job's speed in a file of the repository, and fail if a later version is slower than that.

hotlap baseline save train.py --epochs 1
hotlap baseline check --fail-if-slower 5% train.py --epochs 1
hotlap baseline save --plan plan.yaml train.py --epochs 1
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from hotlap.cli._output import add_json_option, check_json_target, write_json
from hotlap.cli._plans import STEPS, TRIPPED, add_gate_option, add_plan_option, read_share, teller
from hotlap.errors import visible

if TYPE_CHECKING:
    from hotlap.facts.job import Job
    from hotlap.pipeline.baseline import Under

TAKES_COMMAND = True
VERBS = ("save", "check")
USAGE = "hotlap baseline save|check [options] SCRIPT|-m MODULE|-- LAUNCHER [arguments ...]"
FILE = "hotlap-baseline.json"
_TOLERANCE = 0.1  # runs of two days scatter more than runs in turn: less would cry wolf


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", choices=VERBS, metavar="save|check", help="measure and keep, or hold against")
    parser.add_argument("--file", default=FILE, help=f"to be committed (default {FILE})")
    add_plan_option(parser)
    add_gate_option(parser, f"{_TOLERANCE:.0%}%")
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    from hotlap.launch.command import to_job

    job = to_job(options.command_words, None, f"baseline {options.verb}")
    under = _under(options.plan)
    check_json_target(options.json)
    return _save(options, job, under) if options.verb == "save" else _check(options, job, under)


def _under(file: str | None) -> Under:
    from hotlap.pipeline.baseline import AS_IT_IS, Under
    from hotlap.plan.catalogue import all_knobs
    from hotlap.plan.file import read_plan

    return Under(Path(file).as_posix(), read_plan(Path(file), all_knobs())) if file else AS_IT_IS


def _save(options: argparse.Namespace, job: Job, under: Under) -> int:
    from hotlap.pipeline.baseline import save
    from hotlap.report.checked import saved_lines, saved_view
    from hotlap.report.locale import Phrases

    saved = save(job, Path(options.file), STEPS, teller(options.json == "-"), under)
    if options.json:
        write_json(options.json, saved_view(saved, options.file))
    if options.json != "-":
        print(visible("\n".join(saved_lines(saved, options.file, Phrases()))))
    return 0


def _check(options: argparse.Namespace, job: Job, under: Under) -> int:
    from hotlap.facts.baseline import Standing
    from hotlap.pipeline.baseline import check
    from hotlap.report.checked import checked_view
    from hotlap.report.renderers.terminal import show

    given = options.fail_if_slower
    tolerance = read_share(given, "--fail-if-slower") if given else _TOLERANCE
    checked = check(job, Path(options.file), tolerance, STEPS, teller(options.json == "-"), under)
    view = checked_view(checked)
    if options.json:
        write_json(options.json, view)
    if options.json != "-":
        show(view)
    return TRIPPED if checked.standing is Standing.SLOWER else 0
