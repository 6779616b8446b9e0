"""Compare two stored profiles: what changed stage by stage, which findings appeared or went.

hotlap diff 20261116-101500-train last
"""

from __future__ import annotations

import argparse

from hotlap.cli._output import RUN_HELP, add_json_option, add_language_option, stored_run, write_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="RUN_A", help=RUN_HELP)
    parser.add_argument("after", metavar="RUN_B", help="the run to compare it with")
    add_language_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    from hotlap.report.diff import diff_view, show

    diff = diff_view(*(stored_run(text, options)[1] for text in (options.before, options.after)))
    if options.json:
        write_json(options.json, diff)
    if options.json != "-":
        show(diff, options.lang)
    return 0
