"""Places as people read them, and the lines of source around them."""

from __future__ import annotations

import re
import tokenize
from pathlib import Path, PurePath
from typing import Any

from hotlap.facts.codec import to_plain
from hotlap.facts.timeline import Place

# Three lines on each side show the loop or the call that a line stands in, and still fit on a card.
LINES_AROUND = 3
# Generated modules can be huge; a report does not read them whole.
LARGEST_FILE = 2_000_000
WIDEST_LINE = 200

_LIBRARY = re.compile(r"^.*/(?:site|dist)-packages/|^.*/lib/python3\.\d+/")


class Sources:
    """The files of one job, each read at most once."""

    def __init__(self, cwd: str) -> None:
        self._cwd = Path(cwd)
        self._files: dict[str, list[str] | None] = {}

    def place(self, place: Place) -> dict[str, Any]:
        """A place with `shown`: its file as short as it is clear, and its line."""
        return {**to_plain(place), "shown": f"{self._short(place.file)}:{place.line}"}

    def excerpt(self, place: Place) -> dict[str, Any] | None:
        """The lines around a place, or None where the file is gone or was changed since."""
        lines = self._lines(place.file)
        if lines is None or not 1 <= place.line <= len(lines):
            return None
        if place.code and place.code.strip() != lines[place.line - 1].strip():
            return None
        first = max(1, place.line - LINES_AROUND)
        shown = lines[first - 1 : place.line + LINES_AROUND]
        return {"first": first, "lines": [line.rstrip()[:WIDEST_LINE] for line in shown]}

    def _short(self, file: str) -> str:
        path = PurePath(file)
        if path.is_relative_to(self._cwd) and not _LIBRARY.match(file):
            return str(path.relative_to(self._cwd))
        inside = _LIBRARY.sub("", file)
        return inside if inside != file else "/".join(path.parts[-2:]) if len(path.parts) > 2 else file

    def _lines(self, file: str) -> list[str] | None:
        if file not in self._files:
            self._files[file] = _read(self._cwd / file)
        return self._files[file]


def _read(path: Path) -> list[str] | None:
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_FILE:
            return None
        with tokenize.open(path) as source:
            return source.read().split("\n")
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None
