"""action.yml: the commands of its steps are run as a runner runs them, with the hotlap of this repository.

GitHub itself is not here: `gh` is a stand-in that keeps what it is called with, and knows the comments it is given.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = {each["name"]: each for each in ACTION["runs"]["steps"]}
TRAIN = """
import time
import torch

def main():
    net = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(120):
        time.sleep({sleep})
        optimizer.zero_grad()
        net(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()

main()
"""
GH = """#!/bin/sh
echo "$@" >> "$GH_LOG"
case "$*" in *--jq*) cat "$GH_KNOWN" 2>/dev/null;; *body=@*) [ -z "$GH_FAILS" ];; esac
"""


class Runner:
    """What a runner does with a composite action: inputs, steps, outputs, the summary."""

    def __init__(self, folder, **inputs):
        defaults = {name: str(each.get("default", "")) for name, each in ACTION["inputs"].items()}
        self.folder = folder
        self.values = {f"inputs.{name}": value for name, value in (defaults | inputs).items()}
        self.values |= {"github.event.pull_request.number": "7", "github.token": "secret"}
        self.files = {name: folder / name.lower() for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
        for file in self.files.values():
            file.touch()
        programs = folder / "bin"
        programs.mkdir()
        for name, text in {
            "hotlap": f'#!/bin/sh\nexec "{sys.executable}" -m hotlap "$@"\n',
            "gh": GH,
        }.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)

    def run(self, name, **variables):
        step = STEPS[name]
        given = {key: self._filled(value) for key, value in step["env"].items()}
        base = {**os.environ, **{key: str(file) for key, file in self.files.items()}, **given, **variables}
        base |= {
            "RUNNER_TEMP": str(self.folder),
            "GITHUB_REPOSITORY": "ada/printer",
            "PYTHONPATH": str(ROOT / "src"),
        }
        base |= {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "GH_LOG": str(self.folder / "gh.log")}
        base |= {"GH_KNOWN": str(self.folder / "known"), "PYTHONIOENCODING": "utf-8"}
        assert step["shell"] == "bash"
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(words, cwd=self.folder, env=base, capture_output=True, text=True)
        if "id" in step:
            for line in self.files["GITHUB_OUTPUT"].read_text().splitlines():
                key, _, value = line.partition("=")
                self.values[f"steps.{step['id']}.outputs.{key}"] = value
        return done

    def _filled(self, text):
        return re.sub(r"\$\{\{ *(.*?) *\}\}", lambda found: self.values[found[1]], text)

    @property
    def summary(self):
        return self.files["GITHUB_STEP_SUMMARY"].read_text()

    @property
    def calls(self):
        return (self.folder / "gh.log").read_text().splitlines()


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Two versions, the new one far slower, for as few runs as tell it."""
    folder = tmp_path_factory.mktemp("action")
    for name, sleep in (("old", 0.001), ("new", 0.02)):
        (folder / name).mkdir()
        (folder / name / "train.py").write_text(TRAIN.format(sleep=sleep))
    runner = Runner(folder, arguments="-- old/train.py -- 'new/train.py'", budget="6")
    return runner, runner.run("Measure")


def test_a_slower_version_fails_the_gate_with_its_table_in_the_summary(compared):
    runner, done = compared
    assert done.returncode == 0, done.stderr  # the comment comes before the gate
    assert runner.values["steps.measure.outputs.exit-code"] == "4", done.stderr
    assert runner.summary.startswith(
        "<!-- hotlap compare -->\n### hotlap: slower by more than 5%\n\n| variant"
    )
    table = [line for line in runner.summary.splitlines() if line.startswith("|")]
    figures = json.loads(Path(runner.values["steps.measure.outputs.json"]).read_text())
    assert len(table) == 2 + len(figures["variants"])
    assert table[3].startswith(f"| {figures['variants'][1]['name']}")
    assert runner.run("Gate").returncode == 4


def test_the_comment_is_made_once_and_then_replaced(compared):
    runner, _ = compared
    markdown = runner.values["steps.measure.outputs.markdown"]
    assert Path(markdown).read_text() == runner.summary
    assert runner.run("Comment").returncode == 0
    assert (
        runner.calls[-1]
        == f"api --method POST repos/ada/printer/issues/7/comments -F body=@{markdown} --silent"
    )
    (runner.folder / "known").write_text("11\n12\n")
    assert runner.run("Comment").returncode == 0
    assert (
        runner.calls[-1]
        == f"api --method PATCH repos/ada/printer/issues/comments/12 -F body=@{markdown} --silent"
    )
    assert "<!-- hotlap compare -->" in runner.calls[-2]


def test_a_comment_that_cannot_be_written_is_a_warning(compared):
    runner, _ = compared
    done = runner.run("Comment", GH_FAILS="yes")
    assert done.returncode == 0 and "::warning::" in done.stdout


def test_what_cannot_be_compared_says_why(tmp_path):
    runner = Runner(tmp_path, command="baseline", arguments="train.py --title 'two words'")
    (tmp_path / "train.py").touch()
    assert runner.run("Measure").returncode == 0
    assert runner.values["steps.measure.outputs.exit-code"] == "2"
    assert "nothing was compared (exit code 2)" in runner.summary
    assert "hotlap-baseline.json" in runner.summary and "```text" in runner.summary
    assert runner.run("Gate").returncode == 2


def test_an_unknown_command_is_refused(tmp_path):
    runner = Runner(tmp_path, command="tune; ls", arguments="train.py")
    done = runner.run("Measure")
    assert done.returncode == 2 and "::error::" in done.stdout


def test_no_expression_stands_in_a_script():
    """A value that is put into a script is code there; in a variable it is a value."""
    for step in STEPS.values():
        assert "${{" not in step["run"]
        subprocess.run(["bash", "-n", "-c", step["run"]], check=True)
