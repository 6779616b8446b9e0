"""Manifests: what is usable, what is not and why, and when there is too much of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile

from hotlap_recipes.nest import BadInputError
from hotlap_recipes.nest.manifest import Fault, paths_of, read_manifests, require_few


def clip(**others):
    return {"audio_filepath": "a.wav", "duration": 2.0} | others


def test_every_line_is_counted_once_under_its_reason(manifest):
    path = manifest(
        clip(),
        clip(offset=1.5, shard_id=3),
        "",
        "{not json",
        "17",
        {"duration": 2.0},
        clip(duration="long"),
        clip(duration=float("nan")),
        clip(offset=-1.0),
        clip(audio_filepath=7),
        clip(duration=0.0),
        clip(duration=36000.0),
        {"audio_filepath": "nowhere.wav"},
    )
    found = read_manifests([str(path)], 1.0, 60.0)
    assert [(each.offset, each.duration, each.shard) for each in found.entries] == [(0, 2, None), (1.5, 2, 3)]
    assert found.entries[0].path == str(path.parent / "a.wav"), "relative to the manifest"
    assert (found.too_short, found.too_long, found.lines) == (1, 1, 12)
    assert [fault.where for fault in found.faults] == [
        f"{path}, line {n}" for n in (4, 5, 6, 7, 8, 9, 10, 13)
    ]
    summary = found.summary()
    for part in ("2 clips", "1 too short", "1 too long", "6 not a JSON object", "1 without a needed key"):
        assert part in summary, summary


def test_a_duration_that_is_not_stated_is_read_off_the_file(manifest, tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(24000), 16000)
    found = read_manifests([str(manifest({"audio_filepath": "a.wav", "offset": 0.5}))], 0.5, 60.0)
    assert [each.duration for each in found.entries] == [1.0]


def test_nothing_left_is_refused_with_the_reasons(manifest):
    found = read_manifests([str(manifest(clip(duration=36000.0), clip(duration=0.1)))], 1.0, 60.0)
    with pytest.raises(BadInputError, match=r"no clip is left of 2: .*1 too short, 1 too long(?s:.)*\n  -> "):
        found.require_use("skip", 0.5)


def test_too_many_bad_ones_are_refused_and_few_are_not():
    faults = [Fault(f"{number}.wav", "missing") for number in range(5)]
    require_few(faults, 100, "skip", 0.05)
    with pytest.raises(
        BadInputError, match=r"5 of 99 clips are bad: 5 missing(?s:.)*0\.wav: missing"
    ) as refusal:
        require_few(faults, 99, "skip", 0.05)
    assert "3.wav" not in str(refusal.value), "some examples are enough"
    with pytest.raises(BadInputError, match="on_bad_clip=skip"):
        require_few(faults[:1], 1000, "refuse", 0.05)


def test_paths_are_given_in_every_way_that_nemo_knows():
    assert paths_of(None) == []
    assert paths_of("a.json,b.json") == ["a.json", "b.json"]
    assert paths_of([["a.json"], "b.json"]) == ["a.json", "b.json"]


def test_a_manifest_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadInputError, match=r"there is no manifest .*gone\.json"):
        read_manifests([str(tmp_path / "gone.json")], 1.0, 60.0)


def test_a_line_that_is_not_text_is_a_fault_and_not_an_end(tmp_path):
    path = tmp_path / "manifest.json"
    path.write_bytes(b"\xff\xfe\x00\n" + json.dumps(clip()).encode() + b"\n")
    found = read_manifests([str(path)], 1.0, 60.0)
    assert (len(found.entries), len(found.faults)) == (1, 1)
