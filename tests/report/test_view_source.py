"""Places are short and clear; source is shown only where it is still the source that ran."""

from __future__ import annotations

import pytest

from hotlap.facts.timeline import SourceLine
from hotlap.report.view import LARGEST_FILE, Sources


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/home/ada/job/data/set.py", "data/set.py:7"),
        ("/home/ada/job/.venv/lib/python3.11/site-packages/sklearn/base.py", "sklearn/base.py:7"),
        ("/usr/lib/python3.11/json/decoder.py", "json/decoder.py:7"),
        ("/opt/other/place/model.py", "place/model.py:7"),
        ("train.py", "train.py:7"),
        ("<string>", "<string>:7"),
    ],
)
def test_a_place_is_as_short_as_it_is_clear(file, shown):
    assert Sources("/home/ada/job").place(SourceLine(file, 7))["shown"] == shown


def test_an_excerpt_stays_inside_the_file(tmp_path):
    (tmp_path / "a.py").write_text("one\ntwo\n" + "x" * 900)
    sources = Sources(str(tmp_path))
    assert sources.excerpt(SourceLine("a.py", 1, code="one"))["first"] == 1
    assert max(len(line) for line in sources.excerpt(SourceLine("a.py", 2))["lines"]) == 200
    assert sources.excerpt(SourceLine("a.py", 4)) is None
    assert sources.excerpt(SourceLine("a.py", 0)) is None


def test_a_file_that_changed_since_is_not_shown(tmp_path):
    (tmp_path / "a.py").write_text("inserted\nx = f(x)\n")
    assert Sources(str(tmp_path)).excerpt(SourceLine("a.py", 1, code="x = f(x)")) is None


@pytest.mark.parametrize(
    "content", [None, b"\xff\xfe\x00", b"# coding: no-such\n", b"#" * (LARGEST_FILE + 1)]
)
def test_a_file_that_cannot_be_read_is_not_shown(tmp_path, content):
    if content is not None:
        (tmp_path / "a.py").write_bytes(content)
    assert Sources(str(tmp_path)).excerpt(SourceLine("a.py", 1)) is None


def test_a_file_keeps_the_encoding_it_declares(tmp_path):
    (tmp_path / "a.py").write_bytes("# coding: latin-1\ns = 'é'\n".encode("latin-1"))
    assert "é" in Sources(str(tmp_path)).excerpt(SourceLine("a.py", 2))["lines"][1]


def test_a_folder_is_not_read(tmp_path):
    assert Sources(str(tmp_path)).excerpt(SourceLine(str(tmp_path), 1)) is None
