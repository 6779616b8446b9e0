"""What compiled code mentions: attribute and global names, and texts. Nested functions count."""

from __future__ import annotations

import dis
import re
import types
from collections.abc import Iterator


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
