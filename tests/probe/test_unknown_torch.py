"""A torch of a release to come, in which private names that the probe meets are gone: stubbed by taking them away from
this one, as a backend that torch loads at the end of its own import, before hotlap looks at it."""

from __future__ import annotations

import json

import pytest

SCRIPT = """
import json
import torch
from torch import nn
torch.manual_seed(0)
model, rows = nn.Linear(4, 2), torch.randn(64, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    for batch in rows.split(8):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(json.dumps(loss.item()))
"""
FORGET = """
import importlib
import json
import os


def autoload():
    for path in json.loads(os.environ["FORGOTTEN"]):
        owner, _, name = path.rpartition(".")
        parts = owner.split(".")
        for end in range(len(parts), 0, -1):
            try:
                here = importlib.import_module(".".join(parts[:end]))
                break
            except ImportError:
                continue
        for part in parts[end:]:
            here = getattr(here, part)
        delattr(here, name)
"""
FORGOTTEN = {
    "torch._C._autograd._profiler_enabled": None,  # not known to be on
    "torch.utils.data._utils.fetch._MapDatasetFetcher": "items and workers",
    "torch.utils.data.dataloader._BaseDataLoaderIter": "data",
    "torch.nn.modules.module._has_any_global_hook": "calls of modules",
}


@pytest.fixture
def without(tmp_path, monkeypatch):
    """Takes these names away from torch in processes that are started from here."""

    def forget(*names):
        home = tmp_path / "backend"
        facts = home / "forgetful-1.0.dist-info"
        facts.mkdir(parents=True)
        (home / "forgetful.py").write_text(FORGET)
        (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: forgetful\nVersion: 1.0\n")
        (facts / "entry_points.txt").write_text("[torch.backends]\nforgetful = forgetful:autoload\n")
        monkeypatch.setenv("PYTHONPATH", str(home))
        monkeypatch.setenv("FORGOTTEN", json.dumps(names))

    return forget


def test_what_a_torch_does_not_let_in_is_not_measured_and_the_script_trains(run_script, without):
    without(*(name for name in FORGOTTEN))
    watched, alone = run_script.both(SCRIPT)
    assert watched.printed == alone.printed
    (faults,) = [recording.facts["faults"] for recording in watched.recordings]
    for what in filter(None, FORGOTTEN.values()):
        assert any(fault.startswith(f"{what}: not measured: ") for fault in faults), (what, faults)
    timeline = watched.timeline
    assert len(timeline.steps) == 32, "what torch does let in is measured"
    assert timeline.probe.faults == tuple(faults)


def test_modules_that_are_called_otherwise_have_no_forward(run_script, without):
    without("torch.nn.Module._compiled_call_impl")
    script = SCRIPT.replace(
        "model, rows", "nn.Module.__call__ = lambda self, x: self.forward(x)\nmodel, rows"
    )
    watched, alone = run_script.both(script)
    assert watched.printed == alone.printed
    (faults,) = [recording.facts["faults"] for recording in watched.recordings]
    assert any(fault.startswith("forward: not measured: ") for fault in faults)
    assert len(watched.timeline.steps) == 32
