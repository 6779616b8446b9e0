"""What code mentions: attribute and global names, modules, texts, the files that texts may name, types it compares."""

from __future__ import annotations

import ast
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


_SAME_OF_A_SUBCLASS = frozenset({"__name__", "__qualname__", "__module__", "__doc__"})


def compares_type_of(attribute: str, text: str) -> int | None:
    """The first line that takes the type of `x.attribute` for more than its name; None where there is none."""
    if f".{attribute}" not in text or ("type(" not in text and "__class__" not in text):
        return None
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return None
    same: set[str] = set()  # names that stand for it
    for node in nodes:
        if isinstance(node, ast.Assign) and _is_attribute(node.value, attribute):
            same.update(each.id for each in node.targets if isinstance(each, ast.Name))
    harmless = {
        id(node.value)
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr in _SAME_OF_A_SUBCLASS
    }
    lines = [
        node.lineno  # type: ignore[attr-defined]
        for node in nodes
        if (asked := _type_asked(node)) is not None
        and id(node) not in harmless
        and (_is_attribute(asked, attribute) or (isinstance(asked, ast.Name) and asked.id in same))
    ]
    return min(lines, default=None)


def _type_asked(node: ast.AST) -> ast.expr | None:
    """`x` of `type(x)` and of `x.__class__`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type":
        return node.args[0] if len(node.args) == 1 else None
    return node.value if isinstance(node, ast.Attribute) and node.attr == "__class__" else None


def _is_attribute(node: ast.expr, attribute: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == attribute
