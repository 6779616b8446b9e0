"""Files that items may be read from: texts that the walk has met, and that name one or may come to."""

from __future__ import annotations

import os
from collections.abc import Set as AbstractSet

from hotlap.sameness.parts import stat_of

MOST = 200_000
_MOST_OPEN = (
    128  # texts that name nothing now, or hold no sign of a path: each is looked up whenever all is compared
)
_LONGEST = 1024
_ASKING = frozenset(
    {"exists", "lexists", "isfile", "isdir", "is_file", "is_dir", "stat", "access", "open"}
) | {
    *("listdir", "scandir", "iterdir", "glob", "iglob", "rglob", "walk"),
}


class Paths:
    """`files` are those that are there, and once `settle` was called those that code may look for."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self._open: dict[str, None] = {}

    def meet(self, text: str) -> None:
        if not 0 < len(text) < _LONGEST or "\0" in text:
            return
        if (os.sep in text or "." in text) and len(self.files) < MOST and stat_of(text) is not None:
            self.files[text] = None
        elif len(self._open) < _MOST_OPEN and "\n" not in text:
            self._open[text] = None

    def settle(self, used: AbstractSet[str]) -> None:
        """`used`: names that code mentions. Code that asks for files may find one tomorrow that is not there today."""
        if used & _ASKING:
            self.files |= self._open
