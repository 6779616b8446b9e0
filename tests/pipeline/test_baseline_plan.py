"""A job that is run with a plan has a baseline of its own, measured under that plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotlap.errors import HotlapError
from hotlap.facts.plan import Plan
from hotlap.pipeline import baseline
from hotlap.pipeline.baseline import Under

SCRIPT = """
import time, torch
from torch.utils.data import DataLoader, Dataset
class Rows(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.ones(4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
loader = DataLoader(Rows(), batch_size=8, shuffle=True)
for epoch in range(10_000):
    for rows in loader:
        optimizer.zero_grad(); model(rows).sum().backward(); optimizer.step()
"""
CACHED = Under("fast.yaml", Plan({"cache-dataset": "memory", "log-every": 50}))


def ignore(*_):
    """Progress."""


@pytest.fixture
def job(job_of, monkeypatch):
    monkeypatch.setattr(baseline, "pace", lambda _: 1.0)  # nothing is held against the pace here
    return job_of(SCRIPT, 2)


def test_a_baseline_is_of_the_job_under_its_plan(job, tmp_path):
    """Both stand in one file; what could not act is told; the plan makes waiting items many times as fast."""
    path = tmp_path / "hotlap-baseline.json"
    plain = baseline.save(job, path, 10, ignore)
    planned = baseline.save(job, path, 10, ignore, CACHED)
    assert baseline.read_baselines(path).baselines == (plain, planned)
    assert min(planned.rates) > 3 * max(plain.rates)
    assert (planned.plan, planned.settings) == ("fast.yaml", {"cache-dataset": "memory", "log-every": 50})
    assert planned.refused.keys() == {"log-every"}
    assert (plain.plan, plain.settings, plain.refused) == ("", {}, {})
    with pytest.raises(HotlapError) as refused:
        baseline.find(baseline.read_baselines(path), path, Under("other.yaml").named(job), plain.machine)
    assert "it holds: `python train.py under fast.yaml`, `python train.py`" in str(refused.value)
    again = Under("fast.yaml", Plan({"log-every": 50}))
    found = baseline.find(baseline.read_baselines(path), path, again.named(job), plain.machine)
    assert found == planned, "a plan is known by its file: what it holds may change, as a script does"


def test_a_job_that_dies_under_its_plan_is_no_baseline(job, tmp_path):
    (tmp_path / "train.py").write_text("raise SystemExit('no data here')")
    with pytest.raises(HotlapError, match="did not train under fast") as refused:
        baseline.save(job, tmp_path / "b.json", 10, ignore, replace(CACHED, plan=Plan({"num-workers": 0})))
    assert refused.value.exit_code == 3
    assert "without the plan" in str(refused.value)
