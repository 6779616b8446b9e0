"""Speech is made from what is there, always the same, and is what its manifests say."""

from __future__ import annotations

import json

import pytest
import soundfile

from hotlap_recipes.nest import make_data


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_manifests_say_what_the_sounds_are(speech):
    for part, count in (("train", 27), ("validation", 3), ("noise", make_data.NOISES)):
        lines = read(speech / f"{part}_manifest.json")
        assert len(lines) == count
        for line in lines[:5]:
            found = soundfile.info(speech / line["audio_filepath"])
            assert (found.samplerate, found.channels, found.subtype) == (16000, 1, "PCM_16")
            assert found.frames / 16000 == line["duration"]


def test_the_same_seed_makes_the_same_sounds(speech, tmp_path):
    make_data.write_speech(tmp_path / "again", "numpy", 10, seed=3)
    make_data.write_speech(tmp_path / "other", "numpy", 10, seed=4)
    name = "train/train_00002.wav"
    sounds = [(folder / name).read_bytes() for folder in (speech, tmp_path / "again", tmp_path / "other")]
    assert sounds[0] == sounds[1] != sounds[2]


@pytest.mark.parametrize("source", ["asterisk", "espeak"])
def test_real_speech_is_used_where_it_is_installed(tmp_path, source):
    if not make_data.available(source):
        pytest.skip(f"{source} is not installed")
    counts = make_data.write_speech(tmp_path, source, 10, seed=0)
    assert counts["train"] == 9
    assert sum(line["duration"] for line in read(tmp_path / "train_manifest.json")) > 3


def test_wrong_options_are_explained(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(make_data, "available", lambda source: source == "numpy")
    for arguments, words in (
        (["--clips", "3"], "Take at least 10"),
        (["--out", str(tmp_path)], "exists. Remove it"),
        (["--out", str(tmp_path / "new"), "--source", "espeak"], "apt install espeak-ng"),
    ):
        with pytest.raises(SystemExit) as ended:
            make_data.main(arguments)
        assert ended.value.code == 2 and words in capsys.readouterr().err
    make_data.main(["--out", str(tmp_path / "new"), "--clips", "10"])
    assert "from numpy" in capsys.readouterr().out
