"""What is left when hotlap or the job is killed: no trial trains on, no worker waits for a parent that has gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found through /proc")

TRAIN = """
import torch
from torch.utils.data import DataLoader, TensorDataset
rows, net = TensorDataset(torch.randn(64, 8)), torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
open("started", "w").close()
while True:
    for (batch,) in DataLoader(rows, batch_size=8, num_workers=1, persistent_workers=True):
        net(batch).sum().backward()
        optimizer.step()
"""
HANGS = """
import time, torch
from torch.utils.data import DataLoader
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        open("started", "w").close()
        time.sleep(600)
for batch in DataLoader(Rows(), num_workers=1):
    pass
"""
TRIAL = """
import sys
from contextlib import suppress
from pathlib import Path
from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.launch.process import Signals
from hotlap.measure.runner import Bench
from hotlap.pipeline import collect
job = Job((sys.executable, "train.py"), str(Path.cwd()), "job")
with Signals() as signals:
    Bench(job, Path("search"), collect, signals, 10**9).trial(1, Plan())
"""
MARK = "HOTLAP_TEST_ORPHANS"


def alive(mark):
    """With their words. A process may end while it is looked at."""
    found = {}
    for pid in psutil.pids():
        try:
            if f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    found[process] = process.cmdline()
        except (OSError, psutil.Error):
            continue
    return found


def of_the_job(mark):
    return [process for process, words in alive(mark).items() if words[-1:] == ["train.py"]]


@pytest.fixture
def started(tmp_path, eventually):
    """`started(words)`: the process, once its job trains and has a worker."""
    mark = str(tmp_path)

    def start(words, script=TRAIN):
        (tmp_path / "train.py").write_text(script)
        quiet = subprocess.DEVNULL
        environment = {**os.environ, MARK: mark}
        parent = subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=quiet, stderr=quiet)
        eventually(lambda: (tmp_path / "started").exists() and len(of_the_job(mark)) >= 2, 60)
        return parent, mark

    yield start
    for process in alive(mark):
        with suppress(psutil.Error):
            process.kill()


def test_a_trial_does_not_outlive_the_search(started, eventually):
    parent, mark = started([sys.executable, "-c", TRIAL])
    parent.kill()
    parent.wait()
    eventually(lambda: not alive(mark), 60)


@pytest.mark.parametrize("command", ["profile", "run"])
def test_no_worker_outlives_a_job_that_was_killed(command, started, eventually):
    """This one makes an item that takes minutes, so that it does not look for its parent as torch's workers do."""
    parent, mark = started([sys.executable, "-m", "hotlap", command, "--out", "out", "train.py"], HANGS)
    job = min(of_the_job(mark), key=lambda each: each.create_time())
    job.send_signal(signal.SIGTERM)
    eventually(lambda: not of_the_job(mark), 60)
    parent.wait(60)
