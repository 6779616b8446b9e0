"""Run a job under several plans in turn and say how sure the difference is; a table ready for a README.

hotlap compare none plan.yaml -- train.py --epochs 1
hotlap compare --fail-if-slower 5% none plan.yaml -- train.py
hotlap compare -- old/train.py -- new/train.py
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hotlap.cli._output import add_json_option, check_json_target, write_json
from hotlap.cli._plans import (
    STEPS,
    TRIPPED,
    add_budget_option,
    add_gate_option,
    add_out_option,
    read_budget,
    read_share,
    teller,
)
from hotlap.errors import UsageError, visible

if TYPE_CHECKING:
    from hotlap.facts.job import Job
    from hotlap.measure.contest import Variant

TAKES_COMMAND = True
USAGE = "hotlap compare [options] [PLAN PLAN ...] -- SCRIPT [arguments ...] [-- SCRIPT ...]"
_NONE = "none"  # the original script


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_gate_option(parser, "only tell")
    add_budget_option(parser, "10m")
    add_out_option(parser, ".hotlap/compare")
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    from hotlap.pipeline.tune import compare
    from hotlap.report.comparison import markdown, slower_than

    plans, commands = split(options.command_words)
    gate = options.fail_if_slower
    bound = read_share(gate, "--fail-if-slower") if gate else None
    check_json_target(options.json)
    quiet = options.json == "-"
    budget = read_budget(options.budget)
    view = compare(_variants(plans, commands), STEPS, budget, options.out, teller(quiet))
    if options.json:
        write_json(options.json, view)
    if not quiet:
        print(visible(markdown(view)))
    late = slower_than(view, bound) if bound is not None else []
    if late:
        print(
            f"hotlap: slower than {view['variants'][0]['name']}: {visible(', '.join(late))}", file=sys.stderr
        )
    return TRIPPED if late else 0


def split(words: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Plans, and the commands after each `--`."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word == "--":
            parts.append([])
        else:
            parts[-1].append(word)
    plans, commands = parts[0], [part for part in parts[1:] if part]
    if not plans and len(commands) > 1:
        plans = [_NONE] * len(commands)
    if not commands:
        raise UsageError("there is no command to compare.", "hotlap compare none plan.yaml -- train.py")
    late = next((word for word in plans if word.startswith("-")), None)
    if late:
        raise UsageError(f"{late} stands after a plan.", "put options right after `hotlap compare`")
    if len(plans) < 2:
        raise UsageError(
            f"{len(plans)} plans are too few.", "give at least two; `none` is the original script"
        )
    if len(commands) not in (1, len(plans)):
        raise UsageError(
            f"{len(plans)} plans and {len(commands)} commands do not match.", "one command, or one each"
        )
    return plans, commands


def _variants(plans: list[str], commands: list[list[str]]) -> list[Variant]:
    from hotlap.launch.command import to_job
    from hotlap.measure.contest import Variant
    from hotlap.pipeline.tune import plan_named

    jobs = [to_job(command, None, "compare") for command in commands]
    shared = jobs * len(plans) if len(jobs) == 1 else jobs
    return [
        Variant(name, job, plan_named(plan, job))
        for name, plan, job in zip(names(plans, jobs), plans, shared, strict=True)
    ]


def names(plans: Sequence[str], jobs: Sequence[Job]) -> list[str]:
    """Each by what tells it from the others: its plan, its command, or both; numbered where nothing does."""
    files = [Path(plan).name for plan in plans]
    if len(jobs) > 1:
        words = _distinct([job.shown.removeprefix("python ") for job in jobs])
        files = [
            word if plan == _NONE else f"{word} ({plan})" for word, plan in zip(words, files, strict=True)
        ]
    return [name if files.count(name) == 1 else f"{name} ({index + 1})" for index, name in enumerate(files)]


def _distinct(commands: Sequence[str]) -> list[str]:
    """Without the words that all of them have, but for the script where that would leave nothing of one."""
    words = [command.split() for command in commands]
    shared = set[str](words[0]).intersection(*words[1:])
    if any(shared.issuperset(each) for each in words):
        shared -= set(words[0][: 2 if words[0][0] == "-m" else 1])
    return [" ".join(word for word in each if word not in shared) for each in words]
