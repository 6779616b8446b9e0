"""`hotlap run` from end to end, on real scripts, with a knob of another package beside hotlap's own.

All jobs of this file are run first, two at a time; the tests then look at what they left.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

SOURCE = Path(__file__).parents[2] / "src"
LIMIT_S = 180  # turns a hang into a failure

KNOB = '''"""Multiply what the process is worth.

What it does
    Sets `torch.worth`.
"""
from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Seam
from hotlap.ports.values import Whole

class Worth(Knob):
    id = "worth"
    relieves = frozenset()
    seam = Seam.PROCESS
    numerics = Numerics.BITWISE
    values = Whole(0, 9)
    def settings(self, host, timeline): return ()
    def ceiling(self, timeline, host): return 0.0
    def apply(self, target, setting):
        import torch
        if setting == 9: raise CannotActError("nothing is worth that much")
        torch.worth = setting
        return lambda: delattr(torch, "worth")
'''

TRAIN = """
import sys, torch
from torch.utils.data import DataLoader, TensorDataset

def train(steps, workers=0, method=None):
    torch.manual_seed(0)
    data = TensorDataset(torch.arange(16.0).reshape(8, 2))
    loader = DataLoader(data, batch_size=4, num_workers=workers, multiprocessing_context=method)
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    made = 0
    while made < steps:
        for rows, in loader:
            optimizer.zero_grad()
            net(rows).square().mean().backward()
            optimizer.step()
            made += 1
    return net

if __name__ == "__main__":
"""
FORKED = "    train(4, workers=2)\n    print('worth', torch.worth)\n    sys.exit(7)\n"
SPAWNED = "    train(4, workers=1, method='spawn')\n    print('the end', hasattr(torch, 'worth'))\n"
CRASHED = "    print('worth', torch.worth)\n    raise ValueError('no data')\n"
RANKS = (
    "    import torch.distributed as dist\n    dist.init_process_group('gloo')\n    train(4)\n"
    "    dist.barrier()\n    print(f'worth {torch.worth}\\n', end='')\n    dist.destroy_process_group()\n"
)


@dataclass(frozen=True)
class Done:
    """A job under hotlap that has ended."""

    folder: Path
    code: int
    out: str
    err: str

    @property
    def told(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("hotlap: ")]

    @property
    def run(self) -> Path:
        (only,) = (self.folder / ".hotlap" / "runs").iterdir()
        return only

    @property
    def applied(self) -> dict[str, Any]:
        return json.loads((self.run / "applied.json").read_text())


def hotlap(folder: Path, body: str, *words: str) -> Done:
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN + body)
    (folder / "plan.yaml").write_text("hotlap: 1\nsettings: {worth: 4, log-every: 50}\n")
    (folder / "worth.py").write_text(KNOB)
    package = folder / "worth-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: worth\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[hotlap.knobs]\nworth = worth:Worth\n")
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{folder}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "hotlap", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    return Done(folder, done.returncode, done.stdout, done.stderr)


TORCHRUN = ("--", sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
JOBS: dict[str, tuple[str, tuple[str, ...]]] = {
    "forked": (FORKED, ("run", "--plan", "plan.yaml", "--name", "mine", "train.py", "--lr", "1")),
    "crashed": (CRASHED, ("run", "--set", "worth=5", "train.py")),
    "json": (SPAWNED, ("run", "--set", "worth=9", "--out", "here", "--json", "-", "train.py")),
    "ranks": (RANKS, ("run", "--plan", "plan.yaml", *TORCHRUN, "train.py")),
    "asked": (FORKED, ("knobs", "--json", "knobs.json", "--for", "train.py", "--lr", "1")),
    "unasked": ("    pass\n", ("knobs", "--for", "-m", "worth")),
}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory) -> dict[str, Done]:
    root = tmp_path_factory.mktemp("run")
    with ThreadPoolExecutor(2) as two:
        begun = {name: two.submit(hotlap, root / name, body, *words) for name, (body, words) in JOBS.items()}
        return {name: each.result() for name, each in begun.items()}


def test_the_plan_acts_and_the_scripts_output_and_exit_code_are_its_own(jobs):
    done = jobs["forked"]
    assert (done.code, done.out) == (7, "worth 4\n")


def test_what_was_applied_and_what_cannot_act_is_told_once_by_no_worker(jobs):
    first, *reason, last = jobs["forked"].told
    assert first == "hotlap: applied worth=4"
    assert reason[0].startswith("hotlap: log-every=50 cannot act: ")
    assert last.startswith("hotlap: 4 steps at ") and " with worth=4. The run is in .hotlap/runs/" in last
    assert sum("worth=4" in line for line in jobs["forked"].told) == 2
    assert sum("worth=9 cannot act" in line for line in jobs["json"].told) == 1


def test_the_run_folder_holds_the_job_the_plan_and_what_became_of_it(jobs):
    run = jobs["forked"].run
    assert run.name.endswith("-mine")
    assert sorted(path.name for path in run.iterdir()) == [
        "applied.json",
        "host.json",
        "job.json",
        "log.txt",
        "plan.yaml",
        "watch.json",
    ]
    assert yaml.safe_load((run / "plan.yaml").read_text())["settings"] == {"worth": 4, "log-every": 50}
    assert (run / "log.txt").read_text() == ""
    applied = jobs["forked"].applied
    assert (applied["schema"], applied["exit_code"], applied["steps"], applied["starts"]) == (1, 7, 4, 1)
    assert {each["knob"]: each["acts"] for each in applied["fitted"]} == {"worth": True, "log-every": False}


def test_of_several_ranks_one_tells_and_all_are_fitted(jobs):
    done = jobs["ranks"]
    assert done.code == 0, done.err
    assert done.out.count("worth 4") == 2
    assert sum(line == "hotlap: applied worth=4" for line in done.told) == 1
    assert done.applied["steps"] == 4


def test_a_script_that_fails_fails_as_it_would_alone_and_its_plan_is_told_all_the_same(jobs):
    done = jobs["crashed"]
    assert (done.code, done.out) == (1, "worth 5\n")
    assert "ValueError: no data" in done.err
    assert done.told[0] == "hotlap: applied worth=5"
    assert "no optimizer step was seen" in done.told[-1]
    assert done.applied["steps"] in (0, None)


def test_json_is_alone_on_standard_output_and_a_setting_that_cannot_act_changes_nothing(jobs):
    done = jobs["json"]
    facts = json.loads(done.out)
    assert facts["fitted"][0]["reason"] == "nothing is worth that much"
    assert facts["run"] == str(done.folder / "here")
    assert "the end False" in done.err


def test_knobs_are_asked_on_the_first_steps_and_nothing_stays_applied(jobs):
    done = jobs["asked"]
    assert done.code == 0, done.err
    answers = {each["knob"]: each for each in json.loads((done.folder / "knobs.json").read_text())["knobs"]}
    assert answers["worth"]["acts"] and not answers["log-every"]["acts"]
    assert set(answers) >= {"worth", "log-every", "accumulate"}
    can, _, cannot = done.out.partition("These cannot:")
    assert "worth" in can and "log-every" in cannot
    assert "worth 2" not in done.err  # it was ended before its own end
    assert not (done.folder / ".hotlap").exists()


def test_a_script_that_does_not_train_has_no_knobs(jobs):
    done = jobs["unasked"]
    assert (done.code, done.out) == (2, "")
    assert "no training step was seen; the script ended with exit code 0." in done.err
