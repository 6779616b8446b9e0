"""A secret on the command line is in no file of a run, and every file is its owner's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
SCRIPT = """
import torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
rows = torch.utils.data.TensorDataset(torch.randn(640, 8))
for (row,) in torch.utils.data.DataLoader(rows, batch_size=8):
    optimizer.zero_grad()
    model(row).pow(2).mean().backward()
    optimizer.step()
"""


def in_own_process(*words, folder):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-m", "hotlap", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8")


def test_a_secret_is_in_no_file_and_every_file_is_its_owners(tmp_path):
    (tmp_path / "train.py").write_text(f"import sys\nassert sys.argv[-1] == 'S3CR3T'\n{SCRIPT}")
    words = (
        "profile",
        "--steps",
        "5",
        "--experiments",
        "off",
        "--out",
        "run",
        "train.py",
        "--hf_token",
        "S3CR3T",
    )
    before = os.umask(0)
    try:
        done = in_own_process(*words, folder=tmp_path)
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    assert "S3CR3T" not in done.stdout + done.stderr
    paths = [tmp_path / "run", *(tmp_path / "run").rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in paths if path.is_dir()} == {0o700}
    files = [path for path in paths if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert not [path.name for path in files if b"S3CR3T" in path.read_bytes()]
    shown = in_own_process("report", "run", "--format", "markdown", folder=tmp_path)
    assert "***" in shown.stdout
    assert "S3CR3T" not in shown.stdout
