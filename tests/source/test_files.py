"""Edited source compiles to code whose positions are those of the file on disk."""

import ast
import random

import pytest

from hotlap.ports.rewrite import Edit
from hotlap.source.files import SourceFile, UnreadableError, compiled, edited, line_starts


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
