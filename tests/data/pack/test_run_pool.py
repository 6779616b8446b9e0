"""Workers: the same work in one process and in many, errors in plain words, and threads in the reader."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hotlap.data.decode import default_decoders
from hotlap.data.pack import run as pool
from hotlap.data.pack.job import PackRequest, plan_job
from hotlap.data.pack.run import ProgressReporter, carry_out, pack
from hotlap.data.pack.sources import open_source
from hotlap.data.pack.work import PackTask, ShardFolder
from hotlap.data.shards import open_shards
from hotlap.errors import HotlapError


def test_many_processes_write_what_one_writes(speech, tmp_path, silent, monkeypatch):
    order = PackRequest(str(speech), "nemo", shards=5)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    pack(order, tmp_path / "many", silent)
    assert silent.samples == 26 and silent.bytes > 10_000
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    pack(order, tmp_path / "one", silent)
    ours, theirs = (
        {path.name: path.read_bytes() for path in (tmp_path / each).rglob("*") if path.is_file()}
        for each in ("many", "one")
    )
    assert ours == theirs


def test_the_error_of_a_worker_is_the_error_of_the_command(speech, tmp_path, silent, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    (speech / "clips/s.22.wav").write_bytes(b"RIFF")
    with pytest.raises(HotlapError, match=r"s\.22\.wav: the file is damaged") as error:
        pack(PackRequest(str(speech), "nemo", shards=4), tmp_path / "out", silent)
    assert "finished shards are kept" in error.value.remedy
    assert not (tmp_path / "out" / "pack.json").exists()


def test_tasks_are_noted_when_they_are_done(speech, tmp_path, silent, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    job = plan_job(PackRequest(str(speech), "nemo", shards=3), open_source(str(speech), {}))
    place = ShardFolder(tmp_path / "out")
    place.work.mkdir(parents=True)
    carry_out(job, tmp_path / "out", [PackTask("shard", 1)], silent.tell)
    note = place.note("shard-1")
    assert (
        note["name"] == "audio_1.tar" and len(note["crcs"]) == job.bounds[2] - job.bounds[1] == silent.samples
    )
    assert sorted(note["files"]) == ["audio_1.tar", "audio_1.tar.index", "sharded_manifests/manifest_1.json"]
    assert not (tmp_path / "out" / "audio_0.tar").exists()


def test_reports_are_added_up_and_sent_now_and_then():
    sent = []
    report = ProgressReporter(SimpleNamespace(send=sent.append))
    for _ in range(1000):
        report.tell(1, 10)
    report.flush()
    assert sum(samples for samples, _ in sent) == 1000 and sum(size for _, size in sent) == 10_000
    assert len(sent) < 100


def test_a_task_on_the_cluster_tells_what_it_did_or_what_was_wrong(speech, tmp_path, silent):
    """What Ray runs, without Ray."""
    job = plan_job(PackRequest(str(speech), "nemo", shards=3), open_source(str(speech), {}))
    ShardFolder(tmp_path / "out").work.mkdir(parents=True)
    here = Path.cwd()
    try:
        done = pool._carried(job, tmp_path / "out", PackTask("shard", 0), tmp_path)
        assert done[0] == job.bounds[1] and (tmp_path / "out" / "audio_0.tar").exists()
        (speech / "clips/s.0.wav").write_bytes(b"")
        what, remedy = pool._carried(job, tmp_path / "out", PackTask("shard", 0), tmp_path)
    finally:
        os.chdir(here)
    assert "s.0.wav: the file is damaged: it is empty" in what and remedy
    with pytest.raises(HotlapError, match="it is empty"):
        pool._tell_or_raise((what, remedy), silent.tell)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_threads_decode_a_batch_in_order_and_after_a_fork(speech, tmp_path, packed):
    packed(speech, tmp_path / "out", format="nemo")
    data = open_shards(tmp_path / "out", threads=3)
    alone = open_shards(tmp_path / "out", threads=1)
    order = [3, 7, 3, 11, 23, 1, 15]
    wav, flac = [0, 2, 4, 24, 25], [3, 7, 11]
    for batch in (wav, flac):
        padded, lengths = data.padded(batch, value=9)["audio"]
        assert (
            padded.dtype == np.float32
            and padded.flags.writeable
            and padded.shape == (len(batch), lengths.max())
        )
        for row, length, item in zip(padded, lengths, alone.__getitems__(batch), strict=True):
            assert np.array_equal(row[:length], item["audio"]) and (row[length:] == 9).all()
    with pytest.raises(HotlapError, match="not all samples of the batch have the field 'wav'"):
        data.padded([0, 3])
    for ours, theirs in zip(data.__getitems__(order), alone.__getitems__(order), strict=True):
        assert ours["text"] == theirs["text"] and np.array_equal(ours["audio"], theirs["audio"])
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # the parent's threads are not here
        os.write(write, str(len(data.__getitems__(order))).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"7"
    for end in (read, write):
        os.close(end)


def test_a_sound_that_is_damaged_in_its_shard_is_an_error_when_it_is_read(speech, tmp_path, packed):
    packed(speech, tmp_path / "out", format="nemo")
    path = tmp_path / "out" / "audio_0.tar"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"fLaC", b"fLaX"))
    data = open_shards(tmp_path / "out", threads=2)
    assert len(data[0]["audio"])
    with pytest.raises(HotlapError, match="the sound cannot be decoded"):
        data.__getitems__([3, 7])
    assert "flac" in default_decoders()
