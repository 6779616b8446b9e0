"""A file of the user's source, its functions, and text that is edited without touching the file."""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

from hotlap.ports.rewrite import Edit, Function
from hotlap.source.values import family

MODULE = "<module>"
_NEWLINE = re.compile(rb"\r\n|\r|\n")
_CODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_HASH = 16  # hexadecimal digits


class UnreadableError(Exception):
    """The source cannot be edited; says why in one clause."""


@dataclass(frozen=True)
class SourceFile:
    """One file, parsed."""

    path: Path
    text: bytes

    @classmethod
    def read(cls, path: Path) -> SourceFile:
        """Raises UnreadableError for what is no Python source in UTF-8."""
        try:
            found = cls(path, path.read_bytes())
            found.text.decode()
            assert found.tree
        except OSError as error:
            raise UnreadableError(f"{path} cannot be read: {error.strerror}") from None
        except (SyntaxError, ValueError, RecursionError) as error:
            raise UnreadableError(f"{path} is no Python source: {error}") from None
        named = [match[1].lower() for line in found.text.split(b"\n")[:2] if (match := _CODING.match(line))]
        if found.text.startswith(b"\xef\xbb\xbf") or (named and named[0] not in (b"utf-8", b"utf8")):
            raise UnreadableError(f"{path} is not plain UTF-8")
        return found

    @cached_property
    def tree(self) -> ast.Module:
        return parsed(self.text)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        return line_starts(self.text)

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """All of them, outer ones before those within; the module's own statements come first."""
        parents = family(self.tree)[1]

        def made(qualname: str, node: Any) -> Function:
            return Function(qualname, node, self.text, self.starts, parents, self.tree)

        return (
            made(MODULE, self.tree),
            *(made(name, node) for name, node in _scopes(self.tree, "")),
        )

    def function_at(self, line: int) -> Function:
        """The innermost function that holds a line; a lambda does not count, it stands in another's line."""
        found = self.functions[0]
        for each in self.functions:
            if not isinstance(each.node, ast.Lambda) and each.first_line <= line <= each.last_line:
                found = each
        return found

    def hash_of(self, function: Function) -> str:
        lines = _NEWLINE.split(self.text)[function.first_line - 1 : function.last_line]
        return hashlib.sha256(b"\n".join(line.rstrip() for line in lines)).hexdigest()[:_HASH]


def parsed(text: bytes) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an invalid escape in the user's source is not ours to tell of
        return ast.parse(text)


def _scopes(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            name = f"{prefix}{getattr(child, 'name', '<lambda>')}"
            yield name, child
            yield from _scopes(child, f"{name}.<locals>.")
        elif isinstance(child, ast.ClassDef):
            yield from _scopes(child, f"{prefix}{child.name}.")
        else:
            yield from _scopes(child, prefix)


def line_starts(text: bytes) -> tuple[int, ...]:
    return (0, *(match.end() for match in _NEWLINE.finditer(text)))


def edited(text: bytes, edits: Sequence[Edit]) -> bytes:
    """Edits that overlap are refused."""
    pieces, position = [], 0
    for edit in sorted(edits, key=lambda each: (each.start, each.end)):
        if edit.start < position:
            raise UnreadableError("two rewrites change the same expression")
        pieces += [text[position : edit.start], edit.text.encode()]
        position = edit.end
    return b"".join([*pieces, text[position:]])


@lru_cache(maxsize=8)
def edited_tree(text: bytes, edits: tuple[Edit, ...]) -> ast.Module:
    """The edited source, parsed, with the positions of the text before the edits."""
    after = edited(text, edits)
    tree = parsed(after)
    back = _Back(text, after, edits)
    waiting: list[ast.AST] = [*tree.body] if edits else []
    while waiting:
        node = waiting.pop()
        if back.moves(node):
            if hasattr(node, "lineno"):
                back.move(node)
            waiting += ast.iter_child_nodes(node)
    return tree


def compiled(text: bytes, edits: Sequence[Edit], file: str, prologue: ast.stmt | None = None) -> CodeType:
    """The edited source as code whose lines and columns are those of the text before the edits.

    `prologue` is executed after the docstring and the imports from __future__.
    """
    tree = edited_tree(text, tuple(edits))
    if prologue is not None:
        ahead = 1 if ast.get_docstring(tree, clean=False) is not None else 0
        while ahead < len(tree.body) and _is_future(tree.body[ahead]):
            ahead += 1
        begun = ast.fix_missing_locations(prologue)
        tree = ast.Module([*tree.body[:ahead], begun, *tree.body[ahead:]], tree.type_ignores)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code: CodeType = compile(tree, file, "exec", dont_inherit=True)
    return code


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


class _Back:
    """From positions in edited text to those in the text before."""

    def __init__(self, before: bytes, after: bytes, edits: Sequence[Edit]) -> None:
        self._before, self._after = line_starts(before), line_starts(after)
        self._edits: list[tuple[int, int, int, int]] = []  # where each is now, and where it was
        shift = 0
        for edit in sorted(edits, key=lambda each: (each.start, each.end)):
            size = len(edit.text.encode())
            self._edits.append((edit.start + shift, edit.start + shift + size, edit.start, edit.end))
            shift += size - (edit.end - edit.start)

        kept = len(self._before) == len(self._after)
        self._first = bisect_right(self._after, min((each[0] for each in self._edits), default=0))
        last = bisect_right(self._after, max((each[1] for each in self._edits), default=0))
        self._last = last if kept else len(self._after)

    def moves(self, node: ast.AST) -> bool:
        """Not what stands on lines before the first edit, nor behind the last where as many lines are left."""
        first, last = getattr(node, "lineno", self._first), getattr(node, "end_lineno", None) or self._last
        decorators: list[ast.expr] = getattr(node, "decorator_list", [])
        first = min([first, *(each.lineno for each in decorators)])
        return first <= self._last and last >= self._first

    def move(self, node: Any) -> None:
        start = self._offset(self._after[node.lineno - 1] + node.col_offset, end=False)
        stop = self._offset(self._after[node.end_lineno - 1] + node.end_col_offset, end=True)
        node.lineno, node.col_offset = self._place(start)
        node.end_lineno, node.end_col_offset = self._place(max(start, stop))

    def _offset(self, now: int, *, end: bool) -> int:
        shift = 0
        for first, last, start, stop in self._edits:
            if now < first or (now == first and (end or first == last)):
                break
            if now < last or (now == last and end):
                return stop if end else start
            shift = stop - last
        return now + shift

    def _place(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._before, offset) - 1
        return line + 1, offset - self._before[line]
