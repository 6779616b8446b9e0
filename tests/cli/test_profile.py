"""`hotlap profile` from end to end, with real small scripts: every way in which a job may end.

All jobs of this file are run first, two at a time; the tests then look at what they left.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

SOURCE = Path(__file__).parents[2] / "src"
LIMIT_S = 120  # turns a hang into a failure

# An update by hand rather than an optimizer, which imports the compiler: it is the quickest script that trains.
HEAD = """
import os, sys, time
from pathlib import Path
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    stall = 10**9
    def __len__(self): return 8 * 2000
    def __getitem__(self, index):
        if index == 8 * self.stall:
            Path("stalled").write_text(str(os.getpid()))
            time.sleep(60)
        return torch.full((4,), float(index))

weight = torch.zeros(4, requires_grad=True)

def train(steps, at=-1, act=None):
    for step, rows in enumerate(DataLoader(Rows(), batch_size=8), start=1):
        (rows @ weight).square().mean().backward()
        with torch.no_grad():
            weight.sub_(1e-6 * weight.grad)
            weight.grad = None
        time.sleep(0.01)  # long beside what a busy machine adds: what counts as warm-up depends on it
        if step == at: act()
        if step == steps: break

print("hello from the script")
"""
CIVIL = "try:\n    train(2000)\nfinally:\n    print('cleaned up')\n"
LONG = "train(2000, 15, lambda: Path('ready').write_text(str(os.getpid())))\n"
EXITS = "train(12)\nprint('done', *sys.argv[1:])\nsys.exit(7)\n"
CRASHES = "def burst(): raise ValueError('the loss is not finite')\ntrain(2000, 20, burst)\n"
STALLS = "Rows.stall = 30\ntrain(2000)\n"
DEAF = "made = 0\nwhile True:\n    try: train(2000)\n    except: made += 1\n"
FORKED = (
    "import torch.multiprocessing as mp\n"
    "mp.start_processes(lambda rank: train(12), nprocs=1, start_method='fork')\n"
)


@dataclass(frozen=True)
class Done:
    """A job under hotlap that has ended."""

    folder: Path
    code: int
    out: str
    err: str

    @property
    def view(self) -> dict[str, Any]:
        return json.loads((self.folder / "out.json").read_text())

    @property
    def run(self) -> Path:
        (only,) = (self.folder / ".hotlap" / "runs").iterdir()
        return only


Act = Callable[[subprocess.Popen[str], Path], None]


def profile(
    folder: Path, body: str, *options: str, words: tuple[str, ...] = ("train.py",), act: Act | None = None
) -> Done:
    folder.mkdir()
    (folder / "train.py").write_text(HEAD + body)
    command = [sys.executable, "-m", "hotlap", "profile", *options, *words]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    hotlap = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    try:
        if act is not None:
            act(hotlap, folder)
        out, err = hotlap.communicate(timeout=LIMIT_S)
    finally:
        if hotlap.poll() is None:
            os.killpg(hotlap.pid, signal.SIGKILL)
            hotlap.communicate()
    return Done(folder, hotlap.returncode, out, err)


def wait_for(path: Path) -> int:
    end = time.monotonic() + LIMIT_S
    while not (path.is_file() and path.read_text()):
        assert time.monotonic() < end, f"{path.name} did not come"
        time.sleep(0.05)
    time.sleep(0.3)
    return int(path.read_text())


def interrupt_hotlap(hotlap: subprocess.Popen[str], folder: Path) -> None:
    wait_for(folder / "ready")
    hotlap.send_signal(signal.SIGINT)


def interrupt_all(hotlap: subprocess.Popen[str], folder: Path) -> None:
    wait_for(folder / "ready")
    os.killpg(hotlap.pid, signal.SIGINT)


def kill_in_the_stall(hotlap: subprocess.Popen[str], folder: Path) -> None:
    pid = wait_for(folder / "stalled")
    time.sleep(1.5)
    assert psutil.Process(hotlap.pid).children()[0].pid == pid
    os.kill(pid, signal.SIGKILL)


def deaf(folder: Path) -> Done:
    """In a hotlap that has less patience."""
    code = (
        "import sys; from hotlap.launch import observe; from hotlap.cli import main\n"
        "observe._DEAF_AFTER_S = 1.0; sys.exit(main())"
    )
    folder.mkdir()
    (folder / "train.py").write_text(HEAD + DEAF)
    words = ["profile", "--steps", "80", "--experiments", "off", "--json", "out.json", "train.py"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=folder,
        env=environment,
        text=True,
        capture_output=True,
        timeout=LIMIT_S,
    )
    return Done(folder, done.returncode, done.stdout, done.stderr)


INSIDE = ("--", sys.executable, "-m", "hotlap", "profile", "--json", "inner.json", "train.py")
JSON = ("--full", "--json", "out.json")
JOBS: dict[str, Callable[[Path], Done]] = {
    "window": lambda folder: profile(folder, CIVIL, "--steps", "80", "--experiments", "off", "--json", "-"),
    "exits": lambda folder: profile(
        folder, EXITS, "--full", "--out", "here", "--name", "mine", words=("train.py", "--epochs", "1")
    ),
    "crashes": lambda folder: profile(folder, CRASHES, *JSON),
    "interrupted": lambda folder: profile(folder, LONG, *JSON, act=interrupt_hotlap),
    "group": lambda folder: profile(folder, LONG, *JSON, act=interrupt_all),
    "killed": lambda folder: profile(folder, STALLS, *JSON, act=kill_in_the_stall),
    "deaf": deaf,
    "forked": lambda folder: profile(folder, FORKED, *JSON),
    "inside": lambda folder: profile(folder, EXITS, *JSON, words=INSIDE),
    "no-step": lambda folder: profile(folder, "sys.exit(5)\n", *JSON),
}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory) -> dict[str, Done]:
    home = tmp_path_factory.mktemp("jobs")
    with ThreadPoolExecutor(2) as pool:
        running = {name: pool.submit(start, home / name) for name, start in JOBS.items()}
        return {name: job.result() for name, job in running.items()}


@pytest.fixture
def job(jobs) -> Callable[[str], Done]:
    return jobs.__getitem__


def test_after_the_window_the_script_is_ended_in_a_civil_way(job):
    done = job("window")
    assert done.code == 0, done.err
    assert "cleaned up" in done.err
    assert "Traceback" not in done.err
    view = json.loads(done.out)
    assert view["ending"] == "window"
    assert view["step"]["n"] >= 80


def test_json_alone_is_on_standard_output_when_it_is_asked_for(job):
    done = job("window")
    assert done.out.startswith("{")
    assert json.loads(done.out)["schema"] == 1
    assert "hello from the script" in done.err


def test_the_exit_code_the_arguments_and_the_output_are_the_scripts_own(job):
    done = job("exits")
    assert done.code == 7
    assert done.out.startswith("hello from the script\ndone --epochs 1\n")
    assert "Verdict" in done.out


def test_the_run_folder_is_where_and_named_as_asked_for(job):
    done = job("exits")
    assert json.loads((done.folder / "here" / "job.json").read_text())["name"] == "mine"
    assert not (done.folder / ".hotlap").exists()
    assert sorted(path.name for path in (done.folder / "here").iterdir()) == [
        "diagnosis.json",
        "host.json",
        "job.json",
        "log.txt",
        "report.html",
        "timeline.arrow",
        "watch.json",
    ]


def test_a_crash_shows_its_own_traceback_and_the_profile_up_to_there(job):
    done = job("crashes")
    assert done.code == 1
    assert "ValueError: the loss is not finite" in done.err
    assert done.err.count("Traceback") == 1
    assert done.view["ending"] == "crashed"
    assert done.view["step"]["n"] in range(10, 20)


@pytest.mark.parametrize("name", ["interrupted", "group"])
def test_ctrl_c_still_writes_the_report(job, name):
    done = job(name)
    assert done.code == 130
    assert done.err.count("KeyboardInterrupt") == 1, "the script is interrupted once"
    assert done.view["ending"] == "interrupted"
    assert done.view["step"]["n"] > 5
    assert (done.run / "report.html").is_file()


def test_a_job_that_is_killed_in_a_data_stall_counts_the_stall(job):
    done = job("killed")
    assert done.code == 137
    view = done.view
    assert view["ending"] == "killed"
    longest = view["step"]["n"] * view["stages"]["data"]["ms"]
    assert longest > 1500, "the stall is part of the data time"
    assert view["stages"]["data"]["share"] > 0.5


def test_a_script_that_swallows_the_word_to_stop_is_ended_all_the_same(job):
    done = job("deaf")
    assert done.code == 0, done.err
    assert done.view["ending"] == "window"
    assert done.view["step"]["n"] >= 80


def test_training_in_a_forked_process_is_seen_with_its_loader(job):
    done = job("forked")
    assert done.code == 0, done.err
    view = done.view
    assert view["step"]["n"] in range(8, 12)
    assert [loader["dataset"]["kind"] for loader in view["loaders"]] == ["Rows"]
    assert view["probe"]["faults"] == []


def test_a_second_hotlap_inside_the_first_lets_the_first_do_the_work(job):
    done = job("inside")
    assert done.code == 7
    assert "already runs under hotlap" in done.err
    assert done.err.count("  -> ") == 1
    assert done.view["step"]["n"] >= 5
    assert not (done.folder / "inner.json").exists()


def test_a_script_without_a_training_step_gets_one_message_and_keeps_its_exit_code(job):
    done = job("no-step")
    assert done.code == 5
    said = [line for line in done.err.splitlines() if line.startswith(("hotlap:", "  ->"))]
    assert said[1] == "hotlap: the job ended with exit code 5 before its first training step."
    assert said[2].startswith("  -> ")
    assert done.view == {
        "schema": 1,
        "verdict": None,
        "reason": said[1].removeprefix("hotlap: "),
        "run": str(done.run),
    }


def test_nothing_of_the_probe_is_left_in_any_run_folder(jobs):
    for name, done in jobs.items():
        assert not list(done.folder.rglob("probe")), name
        assert not list(done.folder.rglob("*.marks")), name
