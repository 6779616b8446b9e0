"""Diagnose a stored run again, with the rules of this hotlap; nothing is run.

hotlap diagnose last
"""

from __future__ import annotations

import argparse

from hotlap.cli._output import add_json_option, add_run_argument, stored_run, write_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_argument(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    _, view = stored_run(options.stored, options, again=True)
    if options.json:
        write_json(options.json, view)
    if options.json != "-":
        from hotlap.report.renderers.terminal import show

        show(view)
    return 0
