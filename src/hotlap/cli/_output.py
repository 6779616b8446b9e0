"""Where a command's result goes: drawn in the terminal, or as JSON to a file or to standard output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hotlap.errors import UsageError
from hotlap.facts.codec import write_text


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE|-", help="write the same facts as JSON; - is standard output")


def write_json(target: str, facts: Mapping[str, Any]) -> None:
    """Write facts to a file, or print them when the target is `-`."""
    text = json.dumps(facts, indent=1, ensure_ascii=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    try:
        write_text(Path(target), text)
    except OSError as error:
        raise UsageError(
            f"{target} cannot be written: {error.strerror}.", "choose another file for --json"
        ) from None
