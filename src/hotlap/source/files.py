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


# What a parent finds out about a changed file, so that its training processes need not parse it or recognise anything.
# The edits come with the hash of the text that they are of, and with the parts of it that compile alone: the functions
# that are changed, the headers of the classes around them, and the imports, by which the compiler chooses how to call a
# name's attributes. All other code is the original's own.


Part = tuple[int, int]
_BLANK = bytes(each if each in b"\r\n" else ord(" ") for each in range(256))
_IN_FUNCTION = 0x1  # CO_OPTIMIZED: modules and classes do not have it


@dataclass(frozen=True)
class ChangedFile:
    """A file's text with the edits that are made to it. Without `parts` it is compiled as a whole."""

    text: bytes
    edits: tuple[Edit, ...]
    parts: tuple[Part, ...] = ()

    def plain(self) -> dict[str, Any]:
        """For the file that passes a plan on; the text is on disk."""
        edits = [[each.start, each.end, each.text] for each in self.edits]
        return {"hash": _digest(self.text), "edits": edits, "parts": [list(each) for each in self.parts]}

    @classmethod
    def of(cls, text: bytes, plain: dict[str, Any]) -> ChangedFile | None:
        """None where the text is another one than the parent's."""
        if plain["hash"] != _digest(text):
            return None
        parts = tuple((start, end) for start, end in plain["parts"])
        return cls(text, tuple(Edit(*each) for each in plain["edits"]), parts)

    def check(self) -> None:
        """Raises SyntaxError or ValueError where the edited text cannot be compiled, UnreadableError where edits
        overlap."""
        edited_tree(self._alone() if self.parts else self.text, self.edits)

    def whole(self, file: str, prologue: ast.stmt | None = None) -> CodeType:
        """Compiled with all that is in it."""
        return compiled(self.text, self.edits, file, prologue)

    def within(self, original: CodeType, file: str) -> CodeType:
        """The original's code with the changed functions in the place of theirs."""
        found = self._spliced(original, file) if self.parts else None
        return found if found is not None else self.whole(file)

    def _spliced(self, original: CodeType, file: str) -> CodeType | None:
        """None where one of the functions is not found in the original exactly once, or more than functions change."""
        before, after = (compiled(self._alone(), edits, file) for edits in ((), self.edits))
        pairs = [*_pairs(before, after)]
        for old, new in pairs:
            if new is None or sum(each == old for each in _functions(original)) != 1:
                return None
            original = _replaced(original, old, new)
        return original if pairs else None

    def _alone(self) -> bytes:
        """All else is blank, so that lines and columns stay."""
        pieces, position = [], 0
        for start, end in self.parts:
            pieces += [self.text[position:start].translate(_BLANK), self.text[start:end]]
            position = end
        return b"".join([*pieces, self.text[position:].translate(_BLANK)])


def changed_file(source: SourceFile, edits: Sequence[Edit]) -> ChangedFile:
    parts: set[Part] = set()
    for edit in edits:
        around = _parts_around(source, edit)
        if not around:
            return ChangedFile(source.text, tuple(edits))
        parts |= around
    starts = [*source.starts, len(source.text)]
    for each in source.tree.body:
        if isinstance(each, ast.Import | ast.ImportFrom) and not each.col_offset:
            parts.add((starts[each.lineno - 1], starts[each.end_lineno or each.lineno]))
    found = ChangedFile(source.text, tuple(edits), tuple(sorted(parts)))
    try:
        parsed(found._alone())
    except SyntaxError:  # a text of several lines may begin behind an import
        return ChangedFile(source.text, tuple(edits))
    return found


def _parts_around(source: SourceFile, edit: Edit) -> set[Part]:
    """The function that holds an edit, with the headers of its classes; empty where it is in no such function."""
    found: set[Part] = set()
    body: list[ast.stmt] = source.tree.body
    starts = [*source.starts, len(source.text)]
    while True:
        for each in body:
            first, end = starts[_first_line(each) - 1], starts[each.end_lineno or each.lineno]
            if first <= edit.start and edit.end <= end:
                break
        else:
            return set()
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            return {*found, (first, end)}
        if not isinstance(each, ast.ClassDef):
            return set()
        found.add((starts[each.lineno - 1], starts[_first_line(each.body[0]) - 1]))
        body = each.body


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _pairs(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType | None]]:
    """Functions, no inner ones, that differ; None where the code around them differs too."""
    if before == after:
        return
    if before.co_flags & _IN_FUNCTION:
        yield before, after
        return
    if before.replace(co_consts=()) != after.replace(co_consts=()) or _plain(before) != _plain(after):
        yield before, None
        return
    for old, new in zip(_inner(before), _inner(after), strict=True):
        yield from _pairs(old, new)


def _functions(code: CodeType) -> Iterator[CodeType]:
    """Those of a module and of its classes."""
    for each in _inner(code):
        if each.co_flags & _IN_FUNCTION:
            yield each
        else:
            yield from _functions(each)


def _replaced(code: CodeType, old: CodeType, new: CodeType) -> CodeType:
    constants: list[Any] = []
    for each in code.co_consts:
        if not isinstance(each, CodeType):
            constants.append(each)
        elif each.co_flags & _IN_FUNCTION:
            constants.append(new if each == old else each)
        else:
            constants.append(_replaced(each, old, new))
    changed = any(one is not other for one, other in zip(code.co_consts, constants, strict=True))
    return code.replace(co_consts=tuple(constants)) if changed else code


def _inner(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _plain(code: CodeType) -> list[str]:
    """Constants by their text: 1, 1.0 and True are equal."""
    return [repr(each) if not isinstance(each, CodeType) else "" for each in code.co_consts]


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
