"""A baseline is saved, held against, and refused where nothing can be told; a planted slow-down trips the gate."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hotlap.errors import HotlapError
from hotlap.facts import codec
from hotlap.facts.baseline import Baselines, MachineIdentity, Standing
from hotlap.pipeline import baseline

SCRIPT = """
import os, time, torch
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for step in range(100_000):
    loss = model(torch.ones(8, 16)).sum()
    time.sleep(float(os.environ.get("LATE", "0.01")))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""
HERE = MachineIdentity("AMD EPYC 7B13", 2, "x86_64")


@pytest.fixture
def job(job_of):
    return job_of(SCRIPT, 3)  # two would leave an interval as wide as their scatter, times ten


def ignore(*_):
    """Progress."""


@pytest.fixture
def paced(monkeypatch):
    """A machine that stays as fast as it is, whatever else it does meanwhile; and for how many cores that was asked."""
    asked = []
    monkeypatch.setattr(baseline, "pace", lambda cores: asked.append(cores) or 50.0)
    return asked


@pytest.mark.alone
def test_a_planted_slow_down_trips_the_gate(job, paced, tmp_path, monkeypatch):
    path = tmp_path / "hotlap-baseline.json"
    saved = baseline.save(job, path, 10, ignore)
    assert len(saved.rates) == 3 and saved.paces == (50.0,) * 3
    assert paced == [saved.machine.cores] * 3, "beside each run"
    assert baseline.read_baselines(path).baselines == (saved,)
    monkeypatch.setenv("LATE", "0.06")
    found = baseline.check(job, path, 0.1, 10, ignore)
    assert found.standing is Standing.SLOWER, found.reason
    assert found.ratio.interval.high < 0.6
    assert (tmp_path / ".hotlap/.gitignore").read_text() == "*\n"


def test_a_job_that_does_not_train_is_no_baseline(job, tmp_path):
    (tmp_path / "train.py").write_text("raise SystemExit('no data here')")
    with pytest.raises(HotlapError, match="no data here") as refused:
        baseline.save(job, tmp_path / "b.json", 10, ignore)
    assert refused.value.exit_code == 3
    assert not (tmp_path / "b.json").exists()


@pytest.fixture
def known(tmp_path):
    """A file with one baseline, made without a run."""
    figures = {
        "throughput": 10.0, "counts": "samples", "step_ms": 8.0, "data_ms": 2.0, "samples_per_step": 8.0,
        "memory_bytes": None, "utilisation": 0.7, "compile_s": 0.0, "startup_s": 1.0, "foreign_cores": None,
        "steps": 20,
    }  # fmt: skip
    one = {"command": "python train.py", "machine": codec.to_plain(HERE), "saved": "2026-11-16"}
    body = {"schema": 1, "baselines": [{**one, "rates": [9.0, 10.0], "paces": [], "figures": figures}]}
    path = tmp_path / "known.json"
    path.write_text(json.dumps(body))
    return path


def test_the_baseline_of_this_command_and_machine_is_found(known):
    found = baseline.read_baselines(known)
    assert baseline.find(found, known, "python train.py", HERE).rates == (9.0, 10.0)


@pytest.mark.parametrize(
    ("command", "machine", "message", "remedy"),
    [
        ("python other.py", HERE, "holds no baseline of `python other.py`", "save adds one"),
        ("python train.py", replace(HERE, cores=8), "this is 8 cores", "hotlap compare -- old.py -- new.py"),
        ("python train.py", replace(HERE, gpus=("H100",)), "H100", "save one on this machine"),
    ],
)
def test_what_cannot_be_held_against_each_other_is_refused(known, command, machine, message, remedy):
    with pytest.raises(HotlapError) as refused:
        baseline.find(baseline.read_baselines(known), known, command, machine)
    assert message in str(refused.value) and remedy in str(refused.value)


def test_a_file_that_is_missing_or_torn_is_told(tmp_path):
    with pytest.raises(HotlapError, match="there is no file"):
        baseline.read_baselines(tmp_path / "none.json")
    (tmp_path / "torn.json").write_text('{"schema": 1, "base')
    with pytest.raises(HotlapError, match="hotlap baseline save"):
        baseline.read_baselines(tmp_path / "torn.json")


def test_a_file_holds_many_machines(known):
    one = baseline.read_baselines(known).baselines[0]
    both = Baselines((one, replace(one, machine=replace(HERE, cores=64), rates=(90.0, 91.0))))
    assert baseline.find(both, known, one.command, replace(HERE, cores=64)).rates == (90.0, 91.0)
