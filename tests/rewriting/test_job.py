"""A job whose time is in one line, from the profile to the patch: nothing of its files is changed on the way."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hotlap.cli import main
from hotlap.facts import codec
from hotlap.facts.diagnosis import Interval
from hotlap.facts.plan import Plan, Proof
from hotlap.facts.rewrite import Recognition, Rewriting
from hotlap.pipeline import view_of
from hotlap.plan.file import plan_text, read_plan
from hotlap.report.renderers.html import Html
from hotlap.report.renderers.markdown import Markdown
from hotlap.report.renderers.terminal import draw

pytestmark = pytest.mark.runs

DATA = """import torch
from torch.utils.data import Dataset


class Noisy(Dataset):
    def __init__(self):
        self.clips = torch.randn(64, 1500, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        samples = self.clips[index]
        if sum(samples) > 0:  # there is a signal
            return samples, 1
        return samples, 0
"""
TRAIN = """import sys
import torch
from torch.utils.data import DataLoader
from data import Noisy

torch.manual_seed(0)
model = torch.nn.Linear(1500, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
workers = int(sys.argv[1])
context = sys.argv[2] if len(sys.argv) > 2 else None


def main():
    for epoch in range(4):
        for x, y in DataLoader(Noisy(), batch_size=8, num_workers=workers, multiprocessing_context=context):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print("trained", float(model.weight.sum()))


if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    (folder / "data.py").write_text(DATA)
    (folder / "train.py").write_text(TRAIN)
    return folder


def hotlap(folder, *words):
    done = subprocess.run(
        [sys.executable, "-m", "hotlap", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def profiled(job):
    hotlap(job, "profile", "--steps", "20", "--experiments", "off", "--out", "run", "train.py", "0")
    return job


@pytest.fixture(scope="module")
def rewriting(profiled):
    found = codec.read_json(profiled / "run" / "rewrites.json", Recognition).found
    assert [(each.id, each.file, each.line) for each in found] == [("sum-over-tensor", "data.py", 14)]
    assert found[0].rewriting is not None
    return found[0].rewriting


def plan_of(rewriting, guard=None):
    proof = Proof(9.0, Interval(8.0, 10.0), guard, "a machine") if guard else None
    return Plan({rewriting.key: rewriting.setting}, proof)


def test_the_report_shows_the_line_and_the_change(profiled, rewriting, monkeypatch):
    monkeypatch.chdir(profiled)
    view = view_of(Path("run"))
    shown = draw(view)
    assert "    - if sum(samples) > 0:  # there is a signal\n" in shown
    assert "    + if samples.sum() > 0:  # there is a signal\n" in shown
    assert "data.py:14  Python's sum() takes the elements of a torch.Tensor of 1500 one by one" in shown
    assert "改成这样写" in draw(view, "zh")
    assert "```diff\n--- a/data.py\n+++ b/data.py\n" in Markdown().render(view)
    page = Html().render(view)
    assert '<div class="source old"><code>if sum(samples) &gt; 0:' in page
    assert '<div class="source new"><code>if samples.sum() &gt; 0:' in page
    assert json.loads(json.dumps(view["rewrites"]))[0]["rewriting"]["hash"] == rewriting.hash


@pytest.mark.parametrize("words", [("0",), ("2",), ("2", "spawn"), ("2", "forkserver")])
def test_a_run_under_the_plan_trains_the_same_with_and_without_workers(profiled, rewriting, words):
    (profiled / "plan.yaml").write_text(plan_text(plan_of(rewriting)))
    done = hotlap(profiled, "run", "--plan", "plan.yaml", "--json", "out.json", "train.py", *words)
    assert "applied sum-over-tensor@data.py:14 (rounding)" in done.stderr
    plain = subprocess.run(
        [sys.executable, "train.py", "0"], cwd=profiled, capture_output=True, text=True, check=True
    )
    assert done.stdout == plain.stdout
    assert (profiled / "data.py").read_text() == DATA


def test_a_changed_source_is_refused_with_one_line_and_the_job_runs(profiled, rewriting):
    other = replace(rewriting, hash="0" * 16)
    (profiled / "changed.yaml").write_text(plan_text(plan_of(other)))
    done = hotlap(profiled, "run", "--plan", "changed.yaml", "train.py", "0")
    assert "cannot act: the source of Noisy.__getitem__ in data.py has changed" in done.stderr.replace(
        "\nhotlap:   ", " "
    )
    assert done.stdout.startswith("trained")


def test_a_plan_is_written_and_read_back(rewriting, tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(plan_text(plan_of(rewriting)))
    assert "rewrites:\n- id: sum-over-tensor\n  file: data.py\n  line: 14\n" in path.read_text()
    assert dict(read_plan(path).settings) == {rewriting.key: rewriting.setting}
    assert Rewriting.of(rewriting.key, rewriting.setting) == rewriting


@pytest.mark.parametrize(
    "text", ["rewrites: 3", "rewrites: [3]", "rewrites: [{id: a}]", "rewrites: [{id: a, file: b, line: x}]"]
)
def test_what_is_no_rewrite_is_refused_with_a_remedy(tmp_path, text, capsys):
    path = tmp_path / "plan.yaml"
    path.write_text(f"hotlap: 1\n{text}\n")
    assert main(["patch", str(path)]) != 0
    assert "  -> " in capsys.readouterr().err


def test_the_patch_holds_what_was_proved_and_git_takes_it(profiled, rewriting, tmp_path, monkeypatch, capsys):
    (tmp_path / "data.py").write_text(DATA)
    monkeypatch.chdir(tmp_path)
    Path("plan.yaml").write_text(plan_text(plan_of(rewriting)))
    assert main(["patch", "plan.yaml", "--apply"]) == 0
    out, err = capsys.readouterr()
    assert out == "" and "not proved" in err and "+        if samples.sum() > 0:" in err
    Path("plan.yaml").write_text(plan_text(plan_of(rewriting, "same")))
    assert main(["patch", "plan.yaml"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(
        "# sum-over-tensor at data.py:14: part of a plan that was measured +900 %; rounding\n"
    )
    assert Path("data.py").read_text() == DATA
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", "apply", "-"], input=out, text=True, check=True)
    after = Path("data.py").read_text()
    assert after == DATA.replace("sum(samples)", "samples.sum()")
    assert main(["patch", "plan.yaml"]) == 0
    assert "has changed since" in capsys.readouterr().err
    Path("data.py").write_text(DATA)
    assert main(["patch", "plan.yaml", "--apply"]) == 0
    assert Path("data.py").read_text() == after


def test_a_profile_has_nothing_proved(profiled, monkeypatch, capsys):
    monkeypatch.chdir(profiled)
    assert main(["patch", "run"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "# sum-over-tensor at data.py:14: not tried\n--- a/data.py" in err
    assert "hotlap tune" in err
