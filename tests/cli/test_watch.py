"""A real job under `hotlap run --watch`, looked at from other processes: a terminal, a browser; until it is killed."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

SOURCE = Path(__file__).parents[2] / "src"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE_S = 240
# It trains until the file `stop` is there; its loss is not finite from step 30 on, its posterior is the prior.
SCRIPT = """
import math, pathlib, time, torch
from torch.utils.data import DataLoader, TensorDataset
from hotlap.watch import PosteriorMonitor

torch.set_num_threads(1)
net = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
monitor = PosteriorMonitor(update_frequency=1, budget="100%")
step = 0
while not pathlib.Path("stop").exists():
    for rows, in DataLoader(TensorDataset(torch.randn(512, 8)), batch_size=4):
        step += 1
        optimizer.zero_grad()
        loss = net(rows).square().mean() + (math.inf if step >= 30 else 0.0)
        loss.backward()
        optimizer.step()
        monitor.update(torch.zeros(256, 4), torch.zeros(256, 4))
        time.sleep(0.005)
        if pathlib.Path("stop").exists():
            break
monitor.close()
"""


def hotlap(*words):
    return [sys.executable, "-m", "hotlap", *words]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watched")
    (folder / "train.py").write_text(SCRIPT)
    return folder


@pytest.fixture(scope="module")
def environment():
    return {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONIOENCODING": "utf-8", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def start(folder, environment):
    """Starts the job, and ends what is left of it."""
    started = []

    def run(*words):
        process = subprocess.Popen(
            hotlap("run", *words, "train.py"), cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield run
    (folder / "stop").touch()
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@pytest.fixture(scope="module")
def look(folder, environment):
    def once():
        command = hotlap("watch", "last", "--json", "-")
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        return (
            json.loads(done.stdout)
            if done.returncode == 0
            else {"state": done.stderr, "steps": 0, "monitors": {}}
        )

    return once


def until(look, wanted):
    end = time.monotonic() + PATIENCE_S
    while not wanted(view := look()):
        assert time.monotonic() < end, view
        time.sleep(0.5)
    return view


@pytest.fixture(scope="module")
def running(start, look):
    """The job, once its monitors have said what is wrong with it."""
    process = start("--watch")

    def told(view):
        words = {name: word["state"] for name, word in view["monitors"].items()}
        return words.get("not-finite") == "not-finite" and words.get("posterior") == "collapsed"

    return process, until(look, told)


def test_a_look_at_a_running_job(running):
    _, view = running
    assert view["state"] == "running" and view["schema"] == 1 and view["steps"] > 30
    assert view["job"]["shown"].endswith("train.py") and view["problems"] == []
    assert view["monitors"]["not-finite"]["since"] == 30
    assert view["monitors"]["posterior"]["figures"]["active"] == 0
    assert {"loss-spike", "gradient-norm", "throughput-drift", "memory-growth"} <= set(view["monitors"])
    assert sum(view["lately"]["stages"].values()) == pytest.approx(1.0)
    assert view["progress"]["total"] == 128 and view["progress"]["epoch"] >= 1
    assert view["usage"]["rss"] > 2**25


def test_the_view_in_a_terminal_goes_on_by_itself_and_can_be_left(running, folder, environment):
    screen, side = pty.openpty()
    variables = environment | {"TERM": "xterm", "COLUMNS": "110", "LINES": "60"}
    viewer = subprocess.Popen(
        hotlap("watch", "last"),
        cwd=folder,
        env=variables,
        stdin=side,
        stdout=side,
        stderr=side,
        close_fds=True,
    )
    os.close(side)
    seen, end = "", time.monotonic() + 60
    while len(set(re.findall(r"([\d,]+) steps ", seen))) < 3 and time.monotonic() < end:
        seen += os.read(screen, 65536).decode("utf-8", "replace")
    viewer.send_signal(signal.SIGINT)
    while viewer.poll() is None and time.monotonic() < end:
        try:
            seen += os.read(screen, 65536).decode("utf-8", "replace")
        except OSError:
            break
    os.close(screen)
    assert viewer.wait(30) == 0
    assert "collapsed" in seen and "Ctrl-C leaves the view" in seen and "Traceback" not in seen
    assert running[0].poll() is None, "the job goes on"


@pytest.fixture
def served(running, folder, environment):
    server = subprocess.Popen(
        hotlap("serve", "last"),
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield server.stdout.readline().strip()
    server.send_signal(signal.SIGINT)
    assert server.wait(30) == 0
    server.communicate()


def test_a_browser_shows_the_same_and_keeps_itself_up_to_date(served, tmp_path):
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{40,}", served)
    address, _, token = served.partition("?token=")
    request = Request(f"{address}view.json", headers={"Authorization": f"Bearer {token}"})
    with urlopen(request, timeout=30) as answer:
        assert json.loads(answer.read())["monitors"]["not-finite"]["since"] == 30
    if CHROMIUM is None:
        pytest.skip("no chromium here: the page was not opened in a browser")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--virtual-time-budget=4500")
    command = [CHROMIUM, *flags, f"--user-data-dir={tmp_path}", "--dump-dom", served]
    page = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120).stdout
    assert int(re.search(r'<html[^>]* data-looks="(\d+)"', page)[1]) >= 1, "its script ran, and asked again"
    assert "collapsed since step" in page and "not finite since step 30" in page
    assert 'id="lost" role="alert" hidden' in page, "every request was answered"
    refused = subprocess.run(
        [*command[:-1], address], capture_output=True, encoding="utf-8", timeout=120
    ).stdout
    assert "the token is missing" in refused and "collapsed" not in refused


def test_a_job_that_was_killed_with_all_that_belongs_to_it(running, look, folder):
    process, view = running
    process.kill()
    os.kill(view["pid"], signal.SIGKILL)
    process.wait(60)
    after = until(look, lambda view: view["state"] != "running")
    assert after["state"] in ("ending", "killed"), "a report might still be on its way"
    (run,) = (folder / ".hotlap" / "runs").iterdir()
    old = time.time() - 60
    os.utime(run / "probe" / f"{view['pid']}.marks", (old, old))
    after = look()
    assert after["state"] == "killed" and after["steps"] >= view["steps"] and after["problems"] == []
    assert after["monitors"]["posterior"]["state"] == "collapsed"
    assert (run / "posterior.jsonl").is_file()


def test_a_run_without_monitors_is_counted_and_says_what_is_not_measured(start, look, folder, environment):
    (folder / "stop").unlink(missing_ok=True)
    process = start()
    view = until(look, lambda view: view["state"] == "running" and view["steps"] > 5)
    assert view["lately"] is None
    command = hotlap("watch", "last", "--lang", "zh")
    drawn = subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8").stdout
    assert "未测量" in drawn and "正在运行" in drawn
    (folder / "stop").touch()
    process.communicate(timeout=60)
    assert process.returncode == 0
    view = look()
    assert view["state"] == "ended" and view["exit_code"] == 0 and view["pictures"] == ["posterior.png"]
