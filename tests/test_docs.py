"""The examples of docs/plans.md run as they stand; those of docs/ci.md are understood."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hotlap.cli import _split_command, build_parser
from hotlap.cli.compare import split
from hotlap.plan.catalogue import all_knobs
from hotlap.plan.file import plan_of, plan_text

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "plans.md").read_text(encoding="utf-8")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
ENVIRONMENT |= {"HF_HUB_OFFLINE": "1"}
TRAIN = """
import torch
from torch.utils.data import DataLoader, TensorDataset

def main():
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(net.parameters())
    for rows, in DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True):
        optimizer.zero_grad()
        net(rows).square().mean().backward()
        optimizer.step()

if __name__ == "__main__":
    main()
"""


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)


def commands():
    return [line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines()]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    plan = yaml.safe_load(blocks("yaml")[0])
    (tmp_path / "plan.yaml").write_text(plan_text(plan_of(plan, all_knobs())))
    return tmp_path


def test_the_code_runs_as_it_stands(tmp_path):
    code = "\n".join(blocks("python"))
    assert code.count("hotlap.apply(") == code.count("Callback(") / 2 == 1
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "applied num-workers=1" in done.stdout
    assert "applied log-every=4 at lightning" in done.stderr
    assert "applied accumulate=2 at hf-trainer" in done.stderr


def test_the_commands_run_as_they_stand(folder):
    ours = [
        line for line in commands() if "torchrun" not in line and "--for" not in line and "--plan" not in line
    ]
    assert len(ours) >= 6
    for line in ours:
        command, _, target = line.partition(" > ")
        words = shlex.split(command)
        assert words[0] == "hotlap"
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        if target:
            assert plan_of(yaml.safe_load(done.stdout), all_knobs()).settings


CI = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")


def test_the_workflows_are_workflows():
    workflows = [
        yaml.safe_load(block)
        for block in re.findall(r"^```yaml\n(.*?)^```", CI, flags=re.MULTILINE | re.DOTALL)
    ]
    (gitlab,) = (each for each in workflows if "speed" in each)
    workflows.remove(gitlab)
    assert len(workflows) == 3
    for workflow in workflows:
        assert workflow[True], "on: is what YAML 1.1 reads as a truth"
        steps = workflow["jobs"]["speed"]["steps"]
        assert all(step.keys() & {"uses", "run"} for step in steps)
        gates = [
            "--fail-if-slower" in step.get("run", "") or "hotlap@" in step.get("uses", "") for step in steps
        ]
        assert sum(gates) == 1
    assert sum("--fail-if-slower" in line for line in gitlab["speed"]["script"]) == 1
    for line in gitlab["speed"]["script"]:
        subprocess.run(["bash", "-n", "-c", line], check=True)


def test_the_inputs_of_the_action_are_those_of_the_action():
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    used = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", CI, flags=re.M | re.S)]
    steps = [step for each in used for step in each.get("jobs", {}).get("speed", {}).get("steps", ())]
    (given,) = [step["with"] for step in steps if "hotlap@" in step.get("uses", "")]
    assert given.keys() <= action["inputs"].keys()
    required = {name for name, each in action["inputs"].items() if each.get("required")}
    assert required <= given.keys()


def test_the_commands_of_ci_are_commands():
    """hotlap's own words are understood; what follows them is the user's."""
    parser = build_parser()
    lines = re.findall(r"(?:\$|run:) (hotlap .*)", CI)
    assert len(lines) >= 5
    for line in lines:
        own, rest = _split_command(parser, shlex.split(line.partition(" |")[0])[1:])
        assert parser.parse_args(own).run is not None
        assert "train.py" in " ".join(rest)
        if own[0] == "compare":
            assert len(split(rest)[1]) == 2
