"""Where a command's result goes: drawn in the terminal, or as JSON to a file or to standard output."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hotlap.errors import UsageError
from hotlap.facts.codec import write_bytes


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE|-", help="write the same facts as JSON; - is standard output")


def add_language_option(parser: argparse.ArgumentParser) -> None:
    from hotlap.report.locale import LANGUAGES

    parser.add_argument("--lang", default="en", help=f"{' or '.join(LANGUAGES)} (default en)")


def write_json(target: str, facts: Mapping[str, Any]) -> None:
    """Write facts to a file, or print them when the target is `-`."""
    from hotlap.report.renderers.json import Json

    text = Json().render(facts)
    if target == "-":
        print_text(text)
    else:
        save_text(Path(target), text, "--json")


def check_json_target(target: str | None) -> None:
    """Refuse a file that cannot be written before the job has run for it."""
    path = Path(target) if target and target != "-" else None
    if path is not None and (path.is_dir() or not os.access(path.absolute().parent, os.W_OK)):
        reason = "it is a folder" if path.is_dir() else f"there is no folder {path.parent} to write to"
        raise UsageError(f"{path} cannot be written: {reason}.", "choose another file for --json")


def save_text(path: Path, text: str, option: str) -> None:
    """Write a file that the user named with an option."""
    try:
        # A path in the text may hold bytes that are no text.
        write_bytes(path, text.encode("utf-8", "replace"))
    except OSError as error:
        what = f"{path} cannot be written: {error.strerror}."
        raise UsageError(what, f"choose another file for {option}") from None


def print_text(text: str) -> None:
    """Print what may hold characters that this terminal or pipe does not know."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
