"""Facts to plain data and back, checked on the way in; files whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest

from hotlap.errors import FactError
from hotlap.facts import codec
from hotlap.facts.codec import from_plain, read_json, to_plain, write_json


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Part:
    name: str
    size: float = 1.0


@dataclass(frozen=True)
class Whole:
    count: int
    colour: Colour
    parts: tuple[Part, ...] = ()
    by_colour: Mapping[Colour, Sequence[int]] = field(default_factory=dict)
    pair: tuple[int, str] | None = None
    ratio: float | None = None
    sure: bool | None = None
    extra: Any = None


WHOLE = Whole(
    3, Colour.BLUE, (Part("a"), Part("b", 2.5)), {Colour.RED: [1, 2]}, (4, "x"), 0.5, False, {"free": [1]}
)


def test_there_and_back():
    assert from_plain(Whole, to_plain(WHOLE)) == WHOLE
    assert from_plain(Whole, json.loads(json.dumps(to_plain(WHOLE)))) == WHOLE


def test_plain_is_what_json_knows():
    assert to_plain(WHOLE) == {
        "count": 3,
        "colour": "blue",
        "parts": [{"name": "a", "size": 1.0}, {"name": "b", "size": 2.5}],
        "by_colour": {"red": [1, 2]},
        "pair": [4, "x"],
        "ratio": 0.5,
        "sure": False,
        "extra": {"free": [1]},
    }


def test_none_stays_none_and_is_not_zero():
    plain = to_plain(Whole(1, Colour.RED))
    assert plain["ratio"] is None
    assert from_plain(Whole, plain).ratio is None


def test_what_a_newer_hotlap_added_is_passed_over_and_what_it_left_out_has_its_default():
    assert from_plain(Whole, {"count": 1, "colour": "red", "novelty": 7}) == Whole(1, Colour.RED)


def test_a_whole_number_is_a_float_too():
    assert from_plain(Part, {"name": "a", "size": 2}) == Part("a", 2.0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"count": "3"}, "fact.count should be int, not '3'."),
        ({"count": 3.5}, "fact.count should be int, not 3.5."),
        ({"count": True}, "fact.count should be int, not True."),
        ({"count": None}, "fact.count should be int, not None."),
        ({"colour": "green"}, "fact.colour is 'green', not one of red, blue."),
        ({"parts": "ab"}, "fact.parts should be a list, not 'ab'."),
        ({"parts": [{"size": 1.0}]}, "fact.parts[0] lacks 'name'."),
        ({"parts": [7]}, "fact.parts[0] should be a mapping, not 7."),
        ({"by_colour": [1]}, "fact.by_colour should be a mapping, not [1]."),
        ({"by_colour": {"red": 1}}, "fact.by_colour.red should be a list, not 1."),
        ({"ratio": "much"}, "fact.ratio should be float, not 'much'."),
        ({"sure": 1}, "fact.sure should be bool, not 1."),
        ({"pair": [4]}, "fact.pair should have 2 entries, not 1."),
        ({"pair": [4, "x", 5]}, "fact.pair should have 2 entries, not 3."),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(change, says):
    with pytest.raises(FactError) as refusal:
        from_plain(Whole, {**to_plain(WHOLE), **change}, "fact")
    assert refusal.value.what == says


def test_a_file_there_and_back(tmp_path):
    write_json(tmp_path / "whole.json", WHOLE)
    assert read_json(tmp_path / "whole.json", Whole) == WHOLE
    assert json.loads((tmp_path / "whole.json").read_text())["schema"] == codec.SCHEMA
    assert [path.name for path in tmp_path.iterdir()] == ["whole.json"], "no draft is left behind"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"count": 3, "col', "is not readable JSON"),
        (b"\xff\xfe\x00", "is not readable JSON"),
        (b'{"schema": 99}', "has schema 99, this hotlap reads up to 1"),
        (b'{"schema": "new"}', "has schema new"),
        (b"[]", "whole.json should be a mapping, not []"),
    ],
    ids=["torn", "binary", "newer", "strange", "list"],
)
def test_a_file_that_cannot_be_read_is_refused_with_its_name_and_a_remedy(tmp_path, content, says):
    (tmp_path / "whole.json").write_bytes(content)
    with pytest.raises(FactError) as refusal:
        read_json(tmp_path / "whole.json", Whole)
    assert "whole.json" in refusal.value.what
    assert says in refusal.value.what


def test_a_missing_file_is_told_with_its_folder(tmp_path):
    with pytest.raises(FactError, match=f"there is no whole.json in {tmp_path}") as refusal:
        read_json(tmp_path / "whole.json", Whole)
    assert refusal.value.remedy


def test_a_folder_in_place_of_a_file(tmp_path):
    (tmp_path / "whole.json").mkdir()
    with pytest.raises(FactError, match="cannot be read"):
        read_json(tmp_path / "whole.json", Whole)


def test_a_write_that_fails_half_way_leaves_the_old_file(tmp_path, monkeypatch):
    write_json(tmp_path / "whole.json", WHOLE)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(OSError, match="No space"):
        write_json(tmp_path / "whole.json", Whole(1, Colour.RED))
    assert read_json(tmp_path / "whole.json", Whole) == WHOLE
    assert [path.name for path in tmp_path.iterdir()] == ["whole.json"], "no draft is left behind"


@pytest.mark.parametrize(
    "content",
    [
        b"1" + b"0" * 400,
        b"[" * 100_000,
        b"[" * 60 + b"]" * 60,
        b"\xff\xfe\x00",
        b'{"a": 1',
        b"",
        b'{"a": 1} x',
    ],
    ids=["huge number", "open for ever", "deep", "no text", "torn", "empty", "more"],
)
def test_what_hotlap_would_not_write_is_no_json(tmp_path, content):
    with pytest.raises(ValueError):
        codec.parse_json(content)
    (tmp_path / "fact.json").write_bytes(content)
    with pytest.raises(FactError) as caught:
        codec.read_json(tmp_path / "fact.json", dict)
    assert caught.value.exit_code == 2
