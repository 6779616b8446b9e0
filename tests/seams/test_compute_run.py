"""Two faults of compute in one real run: it goes on, says so, and leaves a corrected plan and a plain checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import torch
import yaml
from torch import nn

SCRIPT = """
import torch
from torch import nn
from torch._dynamo import register_backend


def planted(graph, inputs):
    raise RuntimeError("no such instruction")


register_backend(planted)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.calls = nn.Linear(8, 16), nn.Linear(16, 4), 0

    def forward(self, x):
        self.calls += 1
        h = self.first(x)
        if self.calls >= 6:  # beyond the range of float16 from here on
            h = nn.functional.linear(h, torch.eye(16) * 1e5) / 1e5
        return self.last(torch.relu(h))


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
x, y = torch.randn(32, 8), torch.randint(0, 4, (32,))
for step in range(12):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoint.pt")
print("calls", net.calls)
"""


def test_a_run_with_two_faults(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    settings = ("precision=16-mixed", "compile=default", "fused-optimizer=true")
    options = [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run(
        [sys.executable, "-m", "hotlap", "run", *options, "train.py"],
        cwd=tmp_path,
        env=os.environ | {"HOTLAP_COMPILE_BACKEND": "planted", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    said = " ".join(done.stderr.replace("hotlap:", "").split())
    assert done.returncode == 0, done.stderr
    assert "calls 12" in done.stdout, "no forward was made twice as far as the script can see"
    assert "compile went from default to off at step 1: the compiler rejects it" in said
    assert "no such instruction" in said
    assert "precision went from 16-mixed to bf16-mixed at step 6: the loss is not finite" in said

    (run,) = (tmp_path / ".hotlap" / "runs").iterdir()
    corrected = yaml.safe_load((run / "corrected.yaml").read_text())
    assert corrected["settings"] == {
        "precision": "bf16-mixed",
        "compile": "off",
        "fused-optimizer": "fused",
    }
    downs = json.loads((run / "applied.json").read_text())["step_downs"]
    assert [(each["knob"], each["step"], each["lost"]) for each in downs] == [
        ("compile", 1, 0),
        ("precision", 6, 0),
    ]

    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert list(saved["net"]) == ["first.weight", "first.bias", "last.weight", "last.bias"]
    assert all(value.isfinite().all() and value.dtype is torch.float32 for value in saved["net"].values())
    assert saved["optimizer"]["param_groups"][0]["fused"] is None
    parameters = [nn.Parameter(value) for value in saved["net"].values()]
    torch.optim.AdamW(parameters).load_state_dict(saved["optimizer"])
