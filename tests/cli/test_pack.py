"""`hotlap pack` as users type it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys

import numpy as np
import pytest

from hotlap.data import open_shards

MODULE = """
import numpy as np

class Rows:
    def __init__(self, count, name="a", scales=(1, 2)):
        self.count, self.name, self.scales = count, name, scales
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        return np.full(3, index * self.scales[1], np.float32), self.name

def halve(item):
    return item[0] / 2, item[1].upper()
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    (tmp_path / "rows_of_mine.py").write_text(MODULE)
    np.save("x.npy", np.arange(40, dtype=np.float32).reshape(10, 4))
    return tmp_path


def test_pack_then_verify_then_read(work, hotlap):
    said = hotlap("pack", "x.npy", "out", "--shards", "2", "--json", "facts.json")
    assert said.code == 0 and said.err == ""
    assert said.out.startswith("out: 10 samples in 2 flat shards, ") and "open_shards('out')" in said.out
    facts = json.loads((work / "facts.json").read_text())
    assert (facts["schema"], facts["samples"], facts["format"], facts["kept_shards"]) == (1, 10, "flat", 0)
    assert "all intact" in hotlap("pack", "verify", "out").out
    assert open_shards("out")[9]["array"].tolist() == [36, 37, 38, 39]
    again = hotlap("pack", "x.npy", "out", "--shards", "2")
    assert again.code == 0 and "were there already" in again.out


def test_verify_names_the_damage_and_fails(work, hotlap):
    hotlap("pack", "x.npy", "out", "--format", "tar")
    path = work / "out" / "shard_0.tar"
    content = bytearray(path.read_bytes())
    content[content.index(np.float32(17).tobytes()) + 2] ^= 1
    path.write_bytes(content)
    said = hotlap("pack", "verify", "out", "--json", "-")
    assert said.code == 1
    facts = json.loads(said.out)
    assert facts["intact"] is False and facts["damage"][0]["samples"] == ["000000004"]
    said = hotlap("pack", "verify", "out")
    assert (
        said.code == 1
        and "out/shard_0.tar holds other bytes than were written: damaged samples 000000004." in said.out
    )


def test_a_dataset_with_arguments_a_function_and_normalising(work, hotlap):
    words = (
        "--arg",
        "count=6",
        "--arg",
        "name=über",
        "--arg",
        "scales=(1, 10)",
        "--map",
        "rows_of_mine:halve",
    )
    assert hotlap("pack", "rows_of_mine:Rows", "out", *words).code == 0
    item = open_shards("out")[5]
    assert item[0].tolist() == [25, 25, 25] and item[1] == "ÜBER" and isinstance(item, tuple)
    assert hotlap("pack", "rows_of_mine:Rows", "even", *words, "--normalize", "0").code == 0
    values = np.stack([item[0] for item in open_shards("even")])
    assert np.allclose(values.mean(0), 0, atol=1e-6) and np.allclose(values.std(0), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("words", "message", "remedy"),
    [
        (("nowhere", "out"), "there is no 'nowhere'", "mypkg.data:TrainSet"),
        (
            ("x.npy", "out", "--format", "parket"),
            "no shard format is called 'parket'",
            "did you mean 'parquet'?",
        ),
        (("x.npy", "out", "--shards", "0"), "10 samples cannot fill 0 shards", "from 1 to 10"),
        (("x.npy", "out", "--shards", "11"), "10 samples cannot fill 11 shards", "from 1 to 10"),
        (("x.npy", "out", "--arg", "a=1"), "takes no --arg (a)", "leave --arg away"),
        (
            ("rows_of_mine:Rows", "out", "--arg", "count"),
            "--arg count is no KEY=VALUE",
            "--arg root=data/train",
        ),
        (
            ("x.npy", "out", "--map", "rows_of_mine:nothing"),
            "rows_of_mine has no 'nothing'",
            "after the colon",
        ),
        (
            ("x.npy", "out", "--format", "nemo"),
            "NeMo's layout holds one sound",
            "pack as tar, flat or parquet",
        ),
        (("x.npy", "x.npy/out"), "x.npy/out cannot be written", "another folder"),
        (("verify", "nowhere"), "nowhere holds no pack.json", "completed"),
        (("x.npy", "out", "--json", "no/such/folder/f"), "cannot be written", "--json"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_bad_input_gets_one_message_and_a_remedy(work, hotlap, words, message, remedy):
    said = hotlap("pack", *words)
    assert said.code == 2 and message in said.err and remedy in said.err
    assert not list(work.glob("out/*.tar"))


def test_a_terminal_shows_rate_and_time_left_and_a_pipe_nothing(work):
    (work / "slow_rows.py").write_text(
        "import time\nclass Rows:\n    def __len__(self): return 60\n"
        "    def __getitem__(self, index):\n        time.sleep(0.01)\n        return index\n"
    )
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, "-m", "hotlap", "pack", "slow_rows:Rows", "out", "--shards", "1"],
        stderr=theirs, stdout=subprocess.PIPE, env={**os.environ, "COLUMNS": "120", "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal's other end is gone when the command is
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    told, _ = run.communicate()
    assert run.returncode == 0 and told.startswith(b"out: 60 samples")
    assert b"packing" in shown and b"/60" in shown
    assert re.search(rb"\d samples/s, [\d.]+ \w*B/s", shown) and re.search(rb"\d:\d\d:\d\d", shown)


def test_ray_packs_the_same_bytes(work, hotlap):
    pytest.importorskip("ray", reason="Ray is not installed")
    words = ("pack", "rows_of_mine:Rows", "--arg", "count=9", "--shards", "3")
    assert hotlap(*words, "here").code == 0
    said = hotlap(*words, "there", "--engine", "ray")
    assert said.code == 0, said.err
    ours, theirs = (
        {path.name: path.read_bytes() for path in (work / each).iterdir()} for each in ("here", "there")
    )
    assert ours == theirs


def test_without_ray_the_way_to_get_it_is_told(work, hotlap, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    said = hotlap("pack", "x.npy", "out", "--engine", "ray")
    assert said.code == 2 and "pip install 'hotlap[ray]'" in said.err
