"""Packing from beginning to end: what a kill leaves is taken up again, and the result is the same to the last byte."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from hotlap.data.pack.job import PackRequest
from hotlap.data.pack.run import pack
from hotlap.data.pack.work import ShardFolder
from hotlap.data.shards import open_shards
from hotlap.errors import HotlapError

SRC = Path(__file__).parents[3] / "src"

# Packs, once for each seed, in children that kill themselves (SIGKILL) at the n-th file operation in the folder, until
# one is through; the twelfth may live. Prints how many it took.
KILLED = """
import os, random, signal, sys
from pathlib import Path
import soundfile
from hotlap.data.formats import format_named
from hotlap.data.pack.job import PackRequest
from hotlap.data.pack.run import pack

source, out, form, field, seeds = sys.argv[1:]
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
format_named(form)

class Silent:
    def begin(self, *_): ...
    def tell(self, *_): ...

def child(folder, fatal):
    count = 0
    def watch(event, args):
        nonlocal count
        if event in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.utime") and out in str(args[0]):
            count += 1
            if count == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(watch)
    pack(PackRequest(source, form, shards=5, normalise=tuple(field.split())), folder, Silent())

for seed in range(int(seeds)):
    draw, lives, status = random.Random(seed), 0, None
    while status != 0:
        lives += 1
        pid = os.fork()
        if pid == 0:
            child(Path(out, str(seed)), draw.randrange(1, 150) if lives < 12 else None)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL, status
    print(lives)
"""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def script(*arguments: str, **options) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


@pytest.mark.parametrize(("form", "field"), [("nemo", ""), ("flat", "array")])
def test_killed_at_any_file_operation_and_taken_up_the_result_is_byte_equal(
    speech, tmp_path, packed, form, field
):
    source = speech
    if form == "flat":
        source = tmp_path / "x.npy"
        np.save(source, np.random.default_rng(0).normal(size=(40, 6)))
    normalise = tuple(field.split())
    packed(source, tmp_path / "whole", format=form, shards=5, normalise=normalise)
    run = script("-c", KILLED, str(source), str(tmp_path / "killed"), form, field, "8")
    said, complaint = run.communicate()
    assert run.returncode == 0, complaint
    assert sum(int(each) for each in said.split()) > 16, "the kills must have hit"
    for seed in range(8):
        assert contents(tmp_path / "killed" / str(seed)) == contents(tmp_path / "whole")


def test_a_killed_packer_takes_its_workers_along_and_is_taken_up(tmp_path, silent):
    """The real thing: processes, killed at seeded moments while they write."""
    folder = tmp_path / "rows"
    folder.mkdir()
    draw = np.random.default_rng(0)
    for number in range(400):
        np.save(folder / f"{number:03}.npy", draw.normal(size=(40, 25)))
    command = (
        "-m",
        "hotlap",
        "pack",
        str(folder),
        str(tmp_path / "out"),
        "--format",
        "tar",
        "--shards",
        "50",
    )
    done: set[str] = set()
    moments = random.Random(7)
    for _ in range(2):
        run = script(*command, cwd=tmp_path)
        goal = len(done) + moments.randrange(1, 8)
        while run.poll() is None and len(done) < goal:
            done = {each.name for each in (tmp_path / "out" / ".packing").glob("shard-*.json")}
            time.sleep(0.001)
        workers = psutil.Process(run.pid).children(recursive=True) if run.poll() is None else []
        run.send_signal(signal.SIGKILL)
        run.communicate()
        _, alive = psutil.wait_procs(workers, timeout=30)
        assert not alive, "workers outlive their packer"
    kept = {
        each.stem: each.stat().st_mtime_ns for each in (tmp_path / "out" / ".packing").glob("shard-*.json")
    }
    assert 0 < len(kept) < 50, "both kills came while shards were written"
    result = pack(PackRequest(str(folder), "tar", shards=50), tmp_path / "out", silent)
    assert result.kept == len(kept) and silent.samples == 8 * (50 - len(kept))
    pack(PackRequest(str(folder), "tar", shards=50), tmp_path / "whole", silent)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_second_packer_is_refused_and_the_first_goes_on(tmp_path, packed):
    np.save(tmp_path / "x.npy", np.zeros((8, 2)))
    with (
        ShardFolder(tmp_path / "out").alone(),
        pytest.raises(HotlapError, match=f"another hotlap \\(process {os.getpid()}\\)"),
    ):
        packed(tmp_path / "x.npy", tmp_path / "out", format="flat")
    assert packed(tmp_path / "x.npy", tmp_path / "out", format="flat").seal.samples == 8


def test_a_finished_folder_is_left_alone_and_another_job_refused(tmp_path, packed, silent):
    np.save(tmp_path / "x.npy", np.arange(16).reshape(8, 2))
    packed(tmp_path / "x.npy", tmp_path / "out", format="flat", shards=2)
    before, told = contents(tmp_path / "out"), silent.samples
    assert packed(tmp_path / "x.npy", tmp_path / "out", format="flat", shards=2).kept == 2
    assert contents(tmp_path / "out") == before and silent.samples == told
    for change in ({"format": "tar", "shards": 2}, {"format": "flat", "shards": 3}):
        with pytest.raises(HotlapError, match="packed otherwise"):
            packed(tmp_path / "x.npy", tmp_path / "out", **change)
    np.save(tmp_path / "x.npy", np.arange(16).reshape(8, 2) + 1)
    with pytest.raises(HotlapError, match="before it changed"):
        packed(tmp_path / "x.npy", tmp_path / "out", format="flat", shards=2)
    assert contents(tmp_path / "out") == before


def test_what_was_packed_of_a_source_that_has_changed_is_thrown_away(speech, tmp_path, packed):
    broken = speech / "clips/s.20.wav"
    sound = broken.read_bytes()
    broken.write_bytes(b"RIFF")
    with pytest.raises(HotlapError, match=r"s.20.wav"):
        packed(speech, tmp_path / "out", format="tar", shards=6)
    assert (tmp_path / "out" / "shard_0.tar").exists() and not (tmp_path / "out" / "pack.json").exists()
    (tmp_path / "out" / "mine.txt").write_text("a note of the user's")
    broken.write_bytes(sound)
    result = packed(speech, tmp_path / "out", format="nemo", shards=2)
    assert result.restarted and result.kept == 0
    assert not list((tmp_path / "out").glob("shard_*")) and (tmp_path / "out" / "mine.txt").exists()
    assert len(open_shards(tmp_path / "out")) == 26


def test_a_finished_shard_that_was_taken_away_is_written_again(speech, tmp_path, packed, silent):
    out = tmp_path / "out"

    def cut_off(job, folder, tasks, tell):
        from hotlap.data.pack.run import carry_out

        carry_out(job, folder, tasks[:4], tell)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(PackRequest(str(speech), "nemo", shards=6), out, silent, cut_off)
    (out / "audio_1.tar").unlink()
    assert packed(speech, out, format="nemo", shards=6).kept == 3
    assert len(open_shards(out)) == 26


def test_a_folder_of_somebody_else_is_not_touched(tmp_path, packed):
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    with pytest.raises(HotlapError, match=r"did not pack \(thesis.tex\)"):
        packed(tmp_path / "x.npy", tmp_path / "home", format="flat")
    assert [each.name for each in (tmp_path / "home").iterdir()] == ["thesis.tex"]


def test_a_full_disk_leaves_no_seal_and_is_taken_up(tmp_path, packed, monkeypatch):
    np.save(tmp_path / "x.npy", np.ones((30, 2)))
    moves = []

    def move_in(self, draft, note, real=ShardFolder.move_in):
        moves.append(note)
        if len(moves) == 3:
            raise OSError(28, "No space left on device")
        real(self, draft, note)

    monkeypatch.setattr(ShardFolder, "move_in", move_in)
    with pytest.raises(HotlapError, match=r"No space left on device.\n.*make room"):
        packed(tmp_path / "x.npy", tmp_path / "out", format="flat", shards=5)
    assert not (tmp_path / "out" / "pack.json").exists()
    with pytest.raises(HotlapError, match=r"holds no pack\.json"):
        open_shards(tmp_path / "out" / ".packing")
    assert packed(tmp_path / "x.npy", tmp_path / "out", format="flat", shards=5).kept == 2
    assert len(open_shards(tmp_path / "out")) == 30


def test_normalising_is_what_sklearn_does_and_its_figures_stand_beside(tmp_path, packed, silent):
    values = np.random.default_rng(5).normal(3, 7, size=(50, 20, 4))
    values[:, :, 3] = 2.0
    np.savez(tmp_path / "x.npz", x=values, y=np.arange(50))
    packed(tmp_path / "x.npz", tmp_path / "out", format="flat", shards=3, normalise=("x",))
    data = open_shards(tmp_path / "out")
    mean, std = values.reshape(-1, 4).mean(0), values.reshape(-1, 4).std(0)
    std[3] = 1
    assert data[0]["x"].dtype == np.float32 and data[9]["y"] == 9
    assert np.allclose(data.gather(range(50))["x"], (values - mean) / std, atol=1e-6)
    figures = json.loads((tmp_path / "out" / "normalisation.json").read_text())["x"]
    assert (
        np.allclose(figures["mean"], mean) and np.allclose(figures["std"], std) and figures["count"] == 1000
    )
    assert [what for what, *_ in silent.began] == ["measuring", "packing"] and silent.samples == 100
    packed(tmp_path / "x.npz", tmp_path / "both", format="tar", normalise=("x", "y"))
    last = open_shards(tmp_path / "both")[49]["y"]
    assert last.shape == () and last == pytest.approx((49 - 24.5) / np.arange(50).std())
    with pytest.raises(HotlapError, match=r"'z' is no array field.*\n.*x, y"):
        packed(tmp_path / "x.npz", tmp_path / "other", format="flat", normalise=("z",))


def test_features_are_computed_once_from_decoded_samples(speech, tmp_path, packed, user_module):
    user_module(
        "own_features",
        "import numpy as np\n"
        "def energy(sample):\n"
        "    if sample['text'] == 'Satz 9 ß':\n        return {'energy': np.float32(0), 'text': 'silence'}\n"
        "    return {'energy': np.square(sample['audio']).sum(), 'text': sample['text']}\n"
        "def broken(sample):\n    return 1 / (sample['text'] != 'Satz 9 ß')\n",
    )
    packed(speech, tmp_path / "out", format="flat", transform="own_features:energy")
    data, sounds = open_shards(tmp_path / "out"), None
    packed(speech, tmp_path / "sounds", format="nemo")
    sounds = open_shards(tmp_path / "sounds")
    assert data[9] == {"energy": 0, "text": "silence"}
    assert data[3] == {"energy": np.square(sounds[3]["audio"]).sum(), "text": "Satz 3 ß"}
    with pytest.raises(
        HotlapError, match=r"s.9.wav cannot be read by own_features:broken: ZeroDivisionError"
    ):
        packed(speech, tmp_path / "other", format="flat", transform="own_features:broken")


def test_a_sample_that_kills_its_worker_is_an_error_and_not_a_hang(tmp_path, user_module, silent):
    text = "import os\nclass Deadly:\n    def __len__(self): return 40\n    def __getitem__(self, index):\n"
    user_module("own_deadly", f"{text}        return index if index != 33 else os._exit(9)\n")
    run = script(
        "-m", "hotlap", "pack", "own_deadly:Deadly", "out", "--shards", "4", cwd=tmp_path
    )  # fmt: skip
    _, complaint = run.communicate(timeout=120)
    assert run.returncode == 2 and "a worker ended with exit code 9" in complaint
