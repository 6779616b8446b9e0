"""Try the fixes that the diagnosis proposes in short isolated trials, keep what pays, write plan.yaml.

hotlap tune train.py --epochs 1
hotlap tune --budget 10m --allow rounding train.py
hotlap tune --goal memory --memory-limit 16GB -- torchrun --nproc_per_node 2 train.py
"""

from __future__ import annotations

import argparse
import re

from hotlap.cli._output import add_json_option, check_json_target, write_json
from hotlap.cli._plans import allowed_numerics
from hotlap.cli._searching import Teller, say_nothing, say_on_stderr
from hotlap.cli._trials import STEPS, add_budget_option, add_out_option, read_budget
from hotlap.errors import UsageError

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
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    from hotlap.launch.command import to_job
    from hotlap.pipeline import write_report
    from hotlap.pipeline.outcome import view_of_search
    from hotlap.pipeline.trying import tune
    from hotlap.ports.knob import Numerics
    from hotlap.propose.search import Wish
    from hotlap.report.renderers.terminal import show
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
    say = Teller(budget, say_nothing if quiet else say_on_stderr)
    folder, _ = tune(job, all_knobs(), wish, budget, STEPS, options.out, say.said(), say_nothing)
    view = view_of_search(folder)
    write_report(folder, view)
    if options.json:
        write_json(options.json, view)
    if not quiet:
        show(view)
    return 0


def read_bytes(text: str) -> int:
    """`16GB`, `800MiB`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]I?B)?", text.strip().upper())
    if not found:
        raise UsageError(f"--memory-limit {text} is no size.", "write 16GB or 800MiB")
    return int(float(found[1]) * _BYTES[found[2] or ""])
