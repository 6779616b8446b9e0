"""`hotlap.profile(fn)` and `%%hotlap profile`, in a process of their own: the probe comes, and leaves nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BEGIN = """
import json, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
import hotlap

class Slow(Dataset):
    def __len__(self):
        return 480

    def __getitem__(self, index):
        end = time.perf_counter() + 0.002
        while time.perf_counter() < end:
            pass
        return torch.full((8,), float(index % 7))

def made():
    torch.manual_seed(3)
    net = torch.nn.Linear(8, 1)
    return net, torch.optim.SGD(net.parameters(), lr=0.001), DataLoader(Slow(), batch_size=8, shuffle=True)

def train(net, optimizer, loader, fails_after=None, error=ValueError):
    for step, rows in enumerate(loader):
        if step == fails_after:
            raise error("enough")
        optimizer.zero_grad()
        net(rows).square().mean().backward()
        optimizer.step()
"""
FUNCTION = """
parts = made()  # before the probe is there; torch itself replaces SGD.step when the first one is built
taps = DataLoader.__iter__, torch.optim.SGD.step, torch.Tensor.backward, torch.nn.Module.__call__
first = hotlap.profile(lambda: train(*parts), name="mine")
drawn = torch.get_rng_state()
plain = made()
train(*plain)
same = torch.equal(parts[0].weight, plain[0].weight) and torch.equal(drawn, torch.get_rng_state())
second = hotlap.profile(lambda: train(*made()), out="again")
stopped = hotlap.profile(lambda: train(*made(), fails_after=40, error=KeyboardInterrupt))
try:
    hotlap.profile(lambda: train(*made(), fails_after=40), out="failed")
    raised = ""
except ValueError as error:
    raised = str(error)
nothing = hotlap.profile(lambda: None)
import os
os.environ["HOTLAP_PROBE"] = str(first.run)
inside = hotlap.profile(lambda: None)
left = taps == (DataLoader.__iter__, torch.optim.SGD.step, torch.Tensor.backward, torch.nn.Module.__call__)
views = [each.view for each in (first, second, stopped)]
print(json.dumps({
    "steps": [view["step"]["seen"] for view in views], "data": [view["stages"]["data"]["share"] for view in views],
    "endings": [view["ending"] for view in views], "coverage": views[0]["coverage"],
    "faults": views[0]["probe"]["faults"], "lines": [line["place"]["code"] for line in views[0]["lines"]],
    "same": same, "raised": raised, "left": left, "run": str(first.run),
    "text": repr(first), "html": first._repr_html_()[:200], "nothing": repr(nothing),
    "inside": repr(inside), "none": nothing._repr_html_()[:5],
}))
"""
CELLS = """
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
shell.run_cell("%load_ext hotlap")
shell.run_cell(BEGIN_TEXT)
shell.run_cell("parts = made()")
result = shell.run_cell("%%hotlap profile mine\\nkept = 7\\nfor _ in range(2):\\n    train(*parts)").result
bad = shell.run_cell("%%hotlap tune\\npass").result
print(json.dumps({
    "kept": shell.user_ns["kept"], "name": result.view["job"]["name"], "steps": result.view["step"]["seen"],
    "lines": [line["place"]["code"] for line in result.view["lines"]], "html": result._repr_html_()[:7], "bad": bad,
}))
"""


def ran(code, folder):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    (folder / "script.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stdout


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    folder = tmp_path_factory.mktemp("function")
    found, _ = ran(BEGIN + FUNCTION, folder)
    return folder, found


def test_each_profile_sees_its_own_steps(seen):
    _, found = seen
    assert found["steps"][:2] == [60, 60] and 39 <= found["steps"][2] <= 40
    assert found["endings"] == ["finished", "finished", "interrupted"]
    assert min(found["data"]) > 0.5 and found["coverage"] > 0.9
    assert found["faults"] == []
    assert any("perf_counter" in line for line in found["lines"]), found["lines"]


def test_the_training_is_the_same_and_nothing_is_left(seen):
    _, found = seen
    assert found["same"]
    assert found["left"]


def test_what_the_function_raises_is_raised_and_its_profile_kept(seen):
    folder, found = seen
    assert found["raised"] == "enough"
    assert (folder / "failed" / "report.html").is_file()
    assert "already runs under hotlap" in found["inside"]
    assert "no training step was seen" in found["nothing"] and found["none"] == "<pre>"


def test_the_report_is_shown_and_can_be_read_again(seen):
    folder, found = seen
    assert found["html"].startswith("<iframe ") and 'sandbox="allow-scripts"' in found["html"]
    assert "input-starved" in found["text"] or "data" in found["text"]
    assert (
        "hotlap run" not in found["text"] and "hotlap tune" not in found["text"]
    )  # there is no command to type
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    words = [sys.executable, "-m", "hotlap", "report", found["run"], "--format", "json"]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["job"]["shown"] == "mine"


def test_a_cell_is_profiled_with_its_variables(tmp_path):
    if importlib.util.find_spec("IPython") is None:
        pytest.skip("IPython is not installed")
    code = CELLS.replace("BEGIN_TEXT", repr(BEGIN))
    found, printed = ran(f"import json\n{code}", tmp_path)
    assert (found["kept"], found["name"], found["steps"]) == (7, "mine", 120)
    assert any("perf_counter" in line for line in found["lines"]), found["lines"]
    assert found["html"] == "<iframe" and found["bad"] is None
    assert "write %%hotlap profile [NAME]" in printed
