"""What compiled code mentions: attribute and global names, modules, texts, and the files that texts may name."""

from __future__ import annotations

import dis
import os
import re
import types
from collections.abc import Iterator
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


def names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)
        elif isinstance(constant, str) and constant.isidentifier():
            yield constant  # getattr(self, "name")


def formatted_in(text: str) -> Iterator[str]:
    """Attributes that `text.format(...)` reads: `{0.level}`."""
    for field in _FIELD.findall(text) if "{" in text else ():
        yield from re.findall(r"\.(\w+)", field)


_FIELD = re.compile(r"\{([^{}:!]*)")


def texts_in(code: types.CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from texts_in(constant)
        elif isinstance(constant, str):
            yield constant


def imports_in(code: types.CodeType) -> Iterator[str]:
    """Modules that the code imports when it runs."""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            yield step.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from imports_in(constant)


def globals_in(code: types.CodeType) -> Iterator[str]:
    """`x`, and not the x of `self.x`."""
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield step.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from globals_in(constant)


class Paths:
    """Files that items may be read from.

    `files` are those that are there, and once `settle` was called those that code may look for.
    """

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
