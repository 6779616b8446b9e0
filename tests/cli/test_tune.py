"""The words of `hotlap tune` and `hotlap compare`, and a whole search and a comparison on real jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from hotlap.cli import main
from hotlap.cli._plans import read_budget
from hotlap.cli.compare import names, split
from hotlap.cli.tune import read_bytes
from hotlap.errors import UsageError
from hotlap.facts.job import Job
from hotlap.plan.catalogue import all_knobs
from hotlap.plan.file import read_plan

SLOW = """
import time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 640
    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.full((8,), float(index)), torch.tensor(float(index % 2))

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
loader = DataLoader(Rows(), batch_size=16, shuffle=True)
for epoch in range(100):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


def hotlap(folder, *words):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "hotlap", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.mark.parametrize(
    ("text", "seconds", "trials"), [("5m", 300, None), ("90s", 90, None), ("12", None, 12)]
)
def test_a_budget_is_a_time_or_a_number(text, seconds, trials):
    budget = read_budget(text)
    assert (budget.seconds, budget.trials) == (seconds, trials)


@pytest.mark.parametrize("text", ["", "soon", "0", "-3", "5 minutes"])
def test_another_budget_is_refused(text):
    with pytest.raises(UsageError, match="--budget"):
        read_budget(text)


def test_sizes():
    assert read_bytes("16GB") == 16 * 10**9
    assert read_bytes("800MiB") == 800 << 20
    with pytest.raises(UsageError, match="no size"):
        read_bytes("large")


def test_plans_and_commands_are_told_apart():
    assert split(["none", "p.yaml", "--", "t.py", "--epochs", "1"]) == (
        ["none", "p.yaml"],
        [["t.py", "--epochs", "1"]],
    )
    assert split(["none", "none", "--", "a.py", "--", "b.py"])[1] == [["a.py"], ["b.py"]]


def test_commands_alone_are_compared_as_they_are():
    assert split(["--", "a.py", "--", "b.py"]) == (["none", "none"], [["a.py"], ["b.py"]])


def test_variants_are_named_by_what_tells_them_apart():
    one, other = (Job(("/usr/bin/python3", name), "/", "x") for name in ("a.py", "b.py"))
    assert names(["none", "deep/plan.yaml"], [one]) == ["none", "plan.yaml"]
    assert names(["none", "none"], [one]) == ["none (1)", "none (2)"]
    assert names(["none", "none"], [one, other]) == ["a.py", "b.py"]
    assert names(["none", "speed"], [one, other]) == ["a.py", "b.py (speed)"]
    long = [
        Job(("python", "train.py", "--data", "d", *words), "/", "x")
        for words in (["--naive"], ["--size", "8"])
    ]
    assert names(["none", "none"], long) == ["--naive", "--size 8"]
    more = [Job(("python", "-m", "pkg.train", "--data", "d", *words), "/", "x") for words in ([], ["--fast"])]
    assert names(["none", "none"], more) == ["-m pkg.train", "-m pkg.train --fast"]
    assert names(["none", "none"], [one, one]) == ["a.py (1)", "a.py (2)"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none", "plan.yaml"], "no command"),
        (["none", "--", "t.py"], "too few"),
        (["none", "a", "--json", "--", "t.py"], "stands after"),
        (["a", "b", "c", "--", "t.py", "--", "u.py"], "do not match"),
    ],
)
def test_words_that_make_no_comparison_are_refused(words, message):
    with pytest.raises(UsageError, match=message):
        split(words)


def test_a_plan_that_is_not_there_is_refused_before_anything_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("raise SystemExit(9)")
    assert main(["compare", "none", "missing.yaml", "--", "train.py"]) == 2
    assert "missing.yaml" in capsys.readouterr().err


@pytest.mark.alone
def test_a_slow_dataset_is_found_mended_and_proved_over_two_searches(tmp_path):
    """Ctrl-C after the first setting that pays, which is kept; the second search goes on from there and proves it.

    The items wait and never change: keeping them or sharing the wait must win, bit by bit the same.
    """
    (tmp_path / "train.py").write_text(SLOW)
    plan = tmp_path / ".hotlap/tune/train/plan.yaml"
    interrupted = interrupt_after(tmp_path, "keep: ", "tune", "--budget", "10m", "train.py")
    assert interrupted.returncode == 0, interrupted.stderr
    assert "interrupted: the best so far is kept" in interrupted.stdout
    kept = read_plan(plan, all_knobs())
    assert kept.settings.keys() & {"cache-dataset", "num-workers"}
    assert kept.proof is None
    before = plan.with_name("ledger.jsonl").read_text()
    done = hotlap(tmp_path, "tune", "--budget", "2", "--json", "out.json", "train.py")
    assert done.returncode == 0, done.stderr
    assert "going on from the ledger" in done.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["plan"]["settings"] == kept.settings
    assert found["gain"]["value"] > 0.3
    assert found["gain"]["interval"]["low"] > 0.0
    assert found["guard"]["sameness"] == "same"
    assert read_plan(plan, all_knobs()).proof.guard == "same"
    assert "Next     hotlap run --plan .hotlap/tune/train/plan.yaml train.py" in done.stdout
    assert plan.with_name("ledger.jsonl").read_text().startswith(before)  # it only grows


@pytest.mark.alone
def test_a_slower_script_trips_the_gate_and_the_table_says_by_how_much(tmp_path):
    """Ten times slower: that is told in three rounds also where runs scatter by a third."""
    (tmp_path / "old.py").write_text(SLOW.replace("0.004", "0.0005"))
    (tmp_path / "new.py").write_text(SLOW.replace("0.004", "0.007"))
    words = ["--budget", "6", "--fail-if-slower", "5%", "--json", "out.json", "--", "old.py", "--", "new.py"]
    done = hotlap(tmp_path, "compare", *words)
    assert done.returncode == 4, done.stderr
    assert "hotlap: slower than old.py: new.py" in done.stderr
    old, new = json.loads((tmp_path / "out.json").read_text())["variants"]
    assert new["ratio"]["high"] < 0.95 and new["throughput"] < 0.7 * old["throughput"]
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert [row.split()[1] for row in rows] == ["variant", "-------", "old.py", "new.py"], done.stdout
    assert max(map(len, rows)) <= 100


def interrupt_after(folder, word, *words):
    """Run hotlap in a process group of its own and press Ctrl-C when a line of its progress holds the word."""
    child = subprocess.Popen(
        [sys.executable, "-m", "hotlap", *words],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    told = []
    for line in child.stderr:
        told.append(line)
        if word in line:
            os.killpg(child.pid, signal.SIGINT)
            break
    out, rest = child.communicate(timeout=120)
    return subprocess.CompletedProcess(words, child.returncode, out, "".join(told) + rest)
