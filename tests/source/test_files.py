"""Edited source compiles to code whose positions are those of the file on disk."""

import ast
import json
import random

import pytest

from hotlap.ports.rewrite import Edit
from hotlap.source.files import (
    ChangedFile,
    SourceFile,
    UnreadableError,
    changed_file,
    compiled,
    edited,
    line_starts,
)


def positions(code):
    yield from ((code.co_name, each) for each in code.co_positions())
    for const in code.co_consts:
        if hasattr(const, "co_positions"):
            yield from positions(const)


TEXT = """def f(größe, b):
    # Wörter
    return (größe +
            b), [x for x in b]


def g():
    return 1
"""


def test_without_edits_it_is_what_python_compiles():
    mine = compiled(TEXT.encode(), [], "a.py")
    assert mine == compile(TEXT, "a.py", "exec")


def test_what_lies_outside_of_an_edit_keeps_its_place_to_the_column():
    source = TEXT.encode()
    at = source.index(b"b), [")
    edit = Edit(at, at + 1, "(b *\n\n   2)")
    after, before = compiled(source, [edit], "a.py"), compile(TEXT, "a.py", "exec")
    new, old = set(positions(after)), set(positions(before))
    assert {each for each in old if each[0] in ("g", "<listcomp>")} <= new
    last = len(line_starts(source))
    for _, (line, end, _, _) in new:
        assert line is None or 0 <= line <= end <= last


@pytest.mark.parametrize("seed", range(40))
def test_random_edits_give_positions_within_the_file(seed):
    draw = random.Random(seed)
    source = TEXT.encode()
    names = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)]
    starts = line_starts(source)
    edits = []
    for node in draw.sample(names, 3):
        start = starts[node.lineno - 1] + node.col_offset
        edits.append(
            Edit(start, start + len(node.id.encode()), draw.choice(["y", "(größe,\n )", "f(1,\n\n2)"]))
        )
    if any(isinstance(node.ctx, ast.Store) for node in names):
        edits = [edit for edit in edits if b" for " not in source[edit.start - 5 : edit.start]]
    code = compiled(source, edits, "a.py")
    width = [len(line) for line in source.split(b"\n")]
    for _, (line, end, column, end_column) in positions(code):
        if line is not None and column is not None:
            assert 0 <= line <= end <= len(width)
            assert column <= width[line - 1] and end_column <= width[end - 1]


def test_overlapping_edits_are_refused():
    with pytest.raises(UnreadableError, match="the same expression"):
        edited(b"abcdef", [Edit(0, 3, "x"), Edit(2, 4, "y")])


@pytest.mark.parametrize(
    "content", [b"x = (", b"\xff\xfe", b"# coding: latin-1\nx = 1\n", b"\xef\xbb\xbfx = 1\n", b"x = '\0'"]
)
def test_what_cannot_be_edited_is_refused(tmp_path, content):
    path = tmp_path / "a.py"
    path.write_bytes(content)
    with pytest.raises(UnreadableError):
        SourceFile.read(path)


def test_functions_by_name_and_line(tmp_path):
    path = tmp_path / "a.py"
    path.write_text(
        "x = 1\nclass C:\n    @staticmethod\n    def m():\n"
        "        def inner():\n            return lambda: 2\n        return inner\n"
    )
    source = SourceFile.read(path)
    names = [each.qualname for each in source.functions]
    assert names == ["<module>", "C.m", "C.m.<locals>.inner", "C.m.<locals>.inner.<locals>.<lambda>"]
    lines = (1, 3, 4, 6, 7)
    assert [source.function_at(line).qualname for line in lines] == [
        "<module>", "C.m", "C.m", "C.m.<locals>.inner", "C.m",
    ]  # fmt: skip


# Only the changed functions of a file are compiled, and the code is what the whole file would give.


SOURCE = '''"""A module — with more than ASCII."""
from __future__ import annotations
import functools

LIMIT = 3


@functools.cache
def first(samples: Unknown) -> Unknown:
    return functools.reduce(max, total(samples))


class Items(Base, metaclass=Meta):
    """Its docstring."""

    size = total([1])

    class Inner:
        @property
        def peak(self, start=total([2])):
            return super().peak + [self.__hidden for _ in range(total(self))][0]

    async def fetched(self): return total(self)

    def last(self):
        def inner():
            return total(self)

        return inner


if LIMIT:
    def conditional(x):
        return total(x)


def again(x): return total(x)
def again(x): return total(x)
'''


def changed(path, text, *places):
    """Each place, a number of `total(`, calls another function."""
    path.write_bytes(text)
    found = [at for at in range(len(text)) if text.startswith(b"total(", at)]
    edits = [Edit(found[place], found[place] + 5, "(\n  other\n  )") for place in places]
    return changed_file(SourceFile.read(path), edits)


def codes(code):
    """All that there is to know of it, lines and columns with it."""
    yield (
        code.co_code,
        [*code.co_positions()],
        code.co_filename,
        code.co_flags,
        code.co_qualname,
        code.co_names,
    )
    for each in code.co_consts:
        if hasattr(each, "co_code"):
            yield from codes(each)
        else:
            yield repr(each)


IN_FUNCTIONS = [(0,), (3,), (4,), (5,), (0, 3, 4, 5), (7,), (7, 8)]
OUTSIDE = {"a class body": (1,), "a default": (2,), "a condition": (6,), "one of them": (0, 2)}


@pytest.mark.parametrize(
    "text", [SOURCE.encode(), SOURCE.replace("\n", "\r\n").encode()], ids=["unix", "windows"]
)
@pytest.mark.parametrize("places", [*IN_FUNCTIONS, *OUTSIDE.values()], ids=str)
def test_the_code_is_that_of_the_whole_file(places, text, tmp_path):
    found = changed(tmp_path / "a.py", text, *places)
    original = compiled(text, [], "a.py")
    assert [*codes(found.within(original, "a.py"))] == [*codes(found.whole("a.py"))]
    assert [*codes(found.whole("a.py"))] != [*codes(original)]


@pytest.mark.parametrize("places", IN_FUNCTIONS, ids=str)
def test_only_changed_functions_are_compiled(places, tmp_path):
    """A fault elsewhere in the text that is on disk by now, as the compiler of another Python sees it, is not met."""
    text = SOURCE.encode()
    found = changed(tmp_path / "a.py", text, *places)
    broken = ChangedFile(text.replace(b"LIMIT = 3", b"LIMIT ? 3"), found.edits, found.parts)
    original = compiled(text, [], "a.py")
    assert [*codes(broken.within(original, "a.py"))] == [*codes(found.whole("a.py"))]


@pytest.mark.parametrize("places", OUTSIDE.values(), ids=OUTSIDE.keys())
def test_what_is_in_no_function_is_compiled_with_its_file(places, tmp_path):
    found = changed(tmp_path / "a.py", SOURCE.encode(), *places)
    broken = ChangedFile(found.text.replace(b"LIMIT = 3", b"LIMIT ? 3"), found.edits, found.parts)
    with pytest.raises(SyntaxError):
        broken.within(compiled(found.text, [], "a.py"), "a.py")


def test_where_a_part_is_no_source_alone_the_whole_file_is_compiled(tmp_path):
    text = SOURCE.replace("import functools\n", "import functools; NOTE = '''\n'''\n").encode()
    found = changed(tmp_path / "a.py", text, 0)
    assert not found.parts
    assert [*codes(found.within(compiled(text, [], "a.py"), "a.py"))] == [*codes(found.whole("a.py"))]


def test_it_is_passed_on_for_the_same_text_alone(tmp_path):
    found = changed(tmp_path / "a.py", SOURCE.encode(), 0, 3)
    passed = json.loads(json.dumps(found.plain()))
    assert ChangedFile.of(found.text, passed) == found
    assert ChangedFile.of(found.text + b"\n", passed) is None
