"""Run a job under several plans in turn and say how sure the difference is; a table ready for a README.

hotlap compare none plan.yaml -- train.py --epochs 1
hotlap compare --fail-if-slower 5% none plan.yaml -- train.py
hotlap compare none none -- old/train.py -- new/train.py
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hotlap.cli._output import add_json_option, check_json_target, write_json
from hotlap.errors import UsageError

if TYPE_CHECKING:
    from hotlap.facts.trial import Trial
    from hotlap.measure.contest import Variant

TAKES_COMMAND = True
USAGE = "hotlap compare [options] PLAN PLAN [...] -- SCRIPT [arguments ...] [-- SCRIPT ...]"
_TRIPPED = 4
_STEPS, _ROUNDS = 60, 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fail-if-slower",
        metavar="SHARE",
        help="exit with 4 if a later one is surely slower by more, such as 5%%",
    )
    parser.add_argument("--out", metavar="DIR", help="where the trials are kept (default .hotlap/compare)")
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    from hotlap.pipeline.trying import compare
    from hotlap.ports.values import NotAllowedError, Share
    from hotlap.report.comparison import markdown, slower_than

    plans, commands = split(options.command_words)
    try:
        bound = Share().read(options.fail_if_slower) if options.fail_if_slower else None
    except NotAllowedError as error:
        raise UsageError(f"--fail-if-slower: {error.what}.", error.remedy) from None
    check_json_target(options.json)
    view = compare(_variants(plans, commands), _STEPS, _ROUNDS, options.out, _told)
    if options.json:
        write_json(options.json, view)
    if options.json != "-":
        print(markdown(view))
    late = slower_than(view, bound) if bound is not None else []
    if late:
        print(f"hotlap: slower than {view['variants'][0]['name']}: {', '.join(late)}", file=sys.stderr)
    return _TRIPPED if late else 0


def split(words: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Plans, and the commands after each `--`."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word == "--":
            parts.append([])
        else:
            parts[-1].append(word)
    plans, commands = parts[0], [part for part in parts[1:] if part]
    if not commands:
        raise UsageError("there is no command to compare.", "hotlap compare none plan.yaml -- train.py")
    late = next((word for word in plans if word.startswith("-")), None)
    if late:
        raise UsageError(f"{late} stands after a plan.", "put options right after `hotlap compare`")
    if len(plans) < 2:
        raise UsageError(
            f"{len(plans)} plans are too few.", "give at least two; `none` is the script as it is"
        )
    if len(commands) not in (1, len(plans)):
        raise UsageError(
            f"{len(plans)} plans and {len(commands)} commands do not match.", "one command, or one each"
        )
    return plans, commands


def _variants(plans: list[str], commands: list[list[str]]) -> list[Variant]:
    from hotlap.launch.command import to_job
    from hotlap.measure.contest import Variant
    from hotlap.pipeline.trying import plan_named

    jobs = [to_job(command, None, "compare") for command in commands]
    names = [name if plans.count(name) == 1 else f"{name} ({index + 1})" for index, name in enumerate(plans)]
    shared = jobs * len(plans) if len(jobs) == 1 else jobs
    return [
        Variant(Path(name).name, job, plan_named(plan, job))
        for name, plan, job in zip(names, plans, shared, strict=False)
    ]


def _told(variant: Variant, trial: Trial) -> None:
    figures = trial.figures
    result = (
        f"{figures.throughput:,.4g} {figures.counts}/s"
        if figures
        else f"{trial.status.value}: {trial.reason}"
    )
    print(f"{variant.name:20} {result}  ({trial.seconds:.0f} s)", file=sys.stderr, flush=True)
