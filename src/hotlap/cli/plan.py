"""Write a starting plan for a job, with the reason of each line.

hotlap plan --preset balanced train.py > plan.yaml
hotlap plan --preset speed --allow rounding --set num-workers=6 train.py > plan.yaml

A profile of the same script in .hotlap/runs is used where there is one.
"""

from __future__ import annotations

import argparse

from hotlap.cli._output import RUN_HELP, add_json_option, leave_numpy_out, print_text, write_json
from hotlap.cli._plans import add_plan_options, overridden, preset_plan

TAKES_COMMAND = True
USAGE = "hotlap plan --preset NAME [options] SCRIPT|-m MODULE|-- LAUNCHER [arguments ...]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_plan_options(parser)
    parser.add_argument("--run", dest="profile", metavar="RUN", help=f"the profile to use: {RUN_HELP}")
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    from hotlap.facts.codec import SCHEMA
    from hotlap.launch.command import to_job
    from hotlap.launch.runfolder import find_run, profile_of
    from hotlap.plan.catalogue import all_knobs
    from hotlap.plan.file import plan_text

    job, knobs = to_job(options.command_words, command="plan"), all_knobs()
    options.preset = options.preset or "balanced"
    profile = find_run(options.profile) if options.profile else profile_of(job)
    if profile:
        leave_numpy_out(options)
    plan = overridden(preset_plan(options, profile, knobs), options.set, knobs)
    if options.json:
        facts = {"settings": dict(plan.settings), "reasons": dict(plan.reasons)}
        write_json(options.json, {"schema": SCHEMA, "preset": options.preset, **facts})
    if options.json != "-":
        seen = f", and of the profile in {profile}" if profile else "; no profile of this job is stored"
        print_text(f"# {options.preset}: from the facts of this machine{seen}\n{plan_text(plan)}")
    return 0
