"""Markdown for a pull request."""

from __future__ import annotations

import pytest

from hotlap.facts.diagnosis import Cause, Diagnosis, Finding, Severity
from hotlap.facts.timeline import SourceLine, Stage, SyncPoint
from hotlap.report.renderers.markdown import Markdown, code, escaped


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_golden(views, golden, lang):
    golden(f"markdown-data-bound-{lang}.md", Markdown().render(views["data-bound"], lang))


@pytest.mark.parametrize("name", ["healthy", "multi-rank", "nothing-measured"])
def test_every_table_row_has_the_columns_of_its_head(views, name):
    rows = [line for line in Markdown().render(views[name]).splitlines() if line.startswith("|")]
    tables, width = 0, 0
    for row, following in zip(rows, [*rows[1:], ""], strict=True):
        if set(following) <= set("|-: ") and following:
            width, tables = row.count(" | "), tables + 1
        assert row.count(" | ") == width
    assert tables >= 1


def test_details_are_closed(views):
    text = Markdown().render(views["data-bound"])
    assert text.count("<details>") == text.count("</details>") > 3


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a_b*c", "a\\_b\\*c"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("x|y", "x\\|y"),
        ("[a](b)", "\\[a\\](b)"),
        ("\x1b", "\\\\x1b"),
    ],
)
def test_text_is_shown_as_it_is(text, shown):
    assert escaped(text) == shown


@pytest.mark.parametrize(
    ("text", "span"), [("a", "`a`"), ("a`b", "``a`b``"), ("`a`", "`` `a` ``"), ("a\nb", "`a\\nb`")]
)
def test_a_code_span_holds_any_code(text, span):
    assert code(text) == span


def test_untrusted_text_opens_no_tag_and_no_column(timeline_of, view_of):
    place = SourceLine("/home/ada/printer/a|<img>.py", 1, "f", "x = '<script>' | y")
    finding = Finding(Cause.HOST_SYNC, Severity.CRITICAL, 0.5, {"call": "<img src=x>"}, place)
    sync = SyncPoint(place, "a | b", 1, 1.0, Stage.OTHER)
    view = view_of(timeline_of({"data": 1.0}, syncs=(sync,)), diagnosis=Diagnosis((finding,)))
    text = Markdown().render(view)
    outside_code = [part for line in text.splitlines() for part in line.split("`")[::2]]
    assert not any("<img" in part or "<script" in part for part in outside_code)
    assert "a \\| b" in text
