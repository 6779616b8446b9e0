"""A speech job as it was published, with Python's `sum()` over a tensor twice in `__getitem__`, through `hotlap tune`.

    python bench/speech_lines.py [--budget 150s]

Speech and noise are mixed by random segments; both are checked for silence by `sum(samples) > 0`. The script's own
clock says what a step takes, with and without the plan that `hotlap tune --allow rounding` writes. Promised: 15 times.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from interleave import host_line

PROMISED = 15.0
ROUNDS = 3
JOB = '''import random
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEGMENT = 16000


class NoisySpeech(Dataset):
    """Clean speech with noise from a random place of a long recording."""

    def __init__(self, clips=256):
        made = torch.Generator().manual_seed(0)
        self.speech = torch.randn(clips, SEGMENT, generator=made)
        self.noise = torch.randn(40 * SEGMENT, generator=made)
        self.labels = torch.randint(0, 10, (clips,), generator=made)

    def __len__(self):
        return len(self.speech)

    def __getitem__(self, index):
        samples = self.speech[index]
        start = random.randrange(len(self.noise) - SEGMENT)
        noise = self.noise[start : start + SEGMENT]
        power = 1.0
        if sum(samples) > 0:
            power = samples.pow(2).mean()
        if sum(noise) > 0:
            noise = noise * 0.5
        mixed = samples + noise * power.sqrt() if torch.is_tensor(power) else samples + noise
        return mixed, self.labels[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, 8, 64, stride=32), nn.ReLU(), nn.AdaptiveAvgPool1d(8), nn.Flatten(), nn.Linear(64, 10)
        )

    def forward(self, x):
        return self.net(x.unsqueeze(1))


def main():
    torch.manual_seed(0)
    random.seed(0)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    times, steps = [], int(sys.argv[1])
    while len(times) < steps:
        for x, y in DataLoader(NoisySpeech(), batch_size=4, shuffle=True):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            times.append(time.perf_counter())
            if len(times) >= steps:
                break
    late = [b - a for a, b in zip(times[steps // 3 :], times[steps // 3 + 1 :])]
    print("STEP", sorted(late)[len(late) // 2])


if __name__ == "__main__":
    main()
'''


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--budget", default="150s")
    budget = parser.parse_args(words).budget
    print(host_line(), flush=True)
    with tempfile.TemporaryDirectory() as given:
        folder = Path(given)
        (folder / "train.py").write_text(JOB)
        hotlap = [sys.executable, "-m", "hotlap"]
        asked = [
            *hotlap,
            "tune",
            "--allow",
            "rounding",
            "--budget",
            budget,
            "--out",
            "tuned",
            "train.py",
            "100000",
        ]
        subprocess.run(asked, cwd=folder, check=False)
        plan = folder / "tuned" / "plan.yaml"
        if not plan.exists():
            return 1
        named = sorted({int(each) for each in re.findall(r"line: (\d+)", plan.read_text())})
        wanted = [
            number for number, line in enumerate(JOB.splitlines(), 1) if "sum(" in line and "if " in line
        ]
        print(
            f"lines in the plan: {named}, lines with sum(): {wanted}{'' if named == wanted else '  MISSED'}"
        )
        patch = subprocess.run(
            [*hotlap, "patch", "tuned"], cwd=folder, capture_output=True, text=True, check=False
        )
        print(patch.stdout, patch.stderr)
        run = [*hotlap, "run", "--plan", str(plan)]
        slow, fast = [], []
        for _ in range(ROUNDS):
            slow.append(clock(folder, [sys.executable, "train.py", "24"]))
            fast.append(clock(folder, [*run, "train.py", "200"]))
    ratio = median(slow) / median(fast)
    shown = f"{median(slow) * 1e3:.1f} ms a step as published, {median(fast) * 1e3:.1f} ms under the plan: {ratio:.1f}x"
    print(f"{shown}{'' if ratio >= PROMISED else '  MISSED'}")
    return 0


def clock(folder: Path, words: list[str]) -> float:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return float(re.findall(r"^STEP (\S+)$", done.stdout, re.MULTILINE)[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
