"""Print the rewrites of a plan as a patch for `git apply`; what is not proved is printed apart.

hotlap patch .hotlap/tune/train > speed.diff
hotlap patch plan.yaml --apply
"""

from __future__ import annotations

import argparse
import sys

from hotlap.cli._output import print_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "named", metavar="RUN|PLAN", help="a plan's file, or the folder of a search or a profile"
    )
    parser.add_argument("--apply", action="store_true", help="change the files, after the patch is shown")


def run(options: argparse.Namespace) -> int:
    from hotlap.pipeline.patch import apply, patch_of

    patch = patch_of(options.named)
    if patch.text:
        print_text(patch.text)
    for each in patch.apart:
        print(each, file=sys.stderr)
    if options.apply:
        apply(patch)
        changed = ", ".join(str(path) for path in patch.files) or "nothing"
        print(f"hotlap: changed {changed}", file=sys.stderr)
    return 0
