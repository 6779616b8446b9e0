"""Text of others cannot act on a terminal, and lines break where people would break them."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from hotlap.report.document import printable
from hotlap.report.sheet import finished, prepared


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain 文字", "plain 文字"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\r\nb\tc", "a\\r\\nb    c"),
        ("right\u202eto left", "right\\u202eto left"),
        ("line\u2028end", "line\\u2028end"),
        ("lone \udcff byte", "lone \\udcff byte"),
    ],
)
def test_control_characters_are_written_out(text, shown):
    assert printable(text) == shown


def test_a_unit_stays_with_its_number():
    glued = prepared("it takes 12.5 ms and 71 % of 3 steps", 80)
    assert [finished(word) for word in glued.split()] == [
        "it",
        "takes",
        "12.5 ms",
        "and",
        "71 %",
        "of",
        "3",
        "steps",
    ]


def test_chinese_breaks_anywhere_but_before_a_closing_mark():
    text = (
        "把这项工作移出 __getitem__：在初始化时对整个数组做一次，或缓存其结果。"
        "只有在还有空闲核心时（例如 2 核），增加工作进程才有用。"
    )
    for width in range(24, 60):
        lines = prepared(text, width).split("\n")
        assert all(cell_len(line.rstrip()) <= width for line in lines)
        assert not any(line[0] in "，。）：" for line in lines)
        assert not any(line.endswith("（") for line in lines)
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_leading_blanks_of_a_line_are_kept():
    assert prepared("    # 注释", 40) == "    # 注释"
