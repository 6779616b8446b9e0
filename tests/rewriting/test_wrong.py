"""Changes that look like rewrites and are wrong: the guard must refuse each, whichever class it is claimed to have.

The changed script is compiled as rewrites are, in memory, and trained beside the original.
"""

import random

import numpy as np
import pytest
import torch

from hotlap.facts.verdict import Sameness
from hotlap.judge.guard import LEAST_SEEDS, bitwise, rewritten
from hotlap.ports.rewrite import Edit
from hotlap.source.files import compiled

pytestmark = pytest.mark.runs

CODE = """
import random
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Items(Dataset):
    def __init__(self):
        made = torch.Generator().manual_seed(0)
        self.waves = torch.randn(96, 12, generator=made)
        self.labels = (self.waves.sum(1) > 0).long()

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, index):
        wave = self.waves[index] * 1.5
        level = sum(wave[2:]) / 10
        peak = max(wave)
        energy = 0.0
        for x in wave:
            energy += x * x
        scale = torch.full((12,), 1.0 + index / 96)
        shift = random.random() - random.random() / 2
        noise = torch.randn(12) * 0.1
        quiet = 1.0 if all(wave < 2.5) else -1.0
        wave = wave * scale + noise + 0.1 * shift
        return torch.cat([wave, torch.stack([level, peak, energy / 12, torch.tensor(quiet)])]), self.labels[index]


def train():
    model = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    items, p = Items(), None
    for epoch in range(100):
        for x, y in DataLoader(items, batch_size=8, shuffle=True):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            for p in model.parameters():
                p.grad.mul_(0.5)
            optimizer.step()
"""
LOOP = "for p in model.parameters():\n                p.grad.mul_(0.5)"
FOREACH = "torch._foreach_mul_([p.grad for p in {}], {})"
WRONG = {
    "an off-by-one slice": ("sum(wave[2:])", "wave[3:].sum()", "rounding"),
    "any for all": ("all(wave < 2.5)", "(wave < 2.5).any()", "bitwise"),
    "an in-place change of an alias": ("self.waves[index] * 1.5", "self.waves[index].mul_(1.5)", "bitwise"),
    "a changed order of draws": (
        "random.random() - random.random() / 2",
        "-random.random() / 2 + random.random()",
        "bitwise",
    ),
    "a draw made once": ("torch.randn(12) * 0.1", "self.__dict__.setdefault('kept', torch.randn(12)) * 0.1", "bitwise"),
    "a least for a most": ("max(wave)", "wave.min()", "bitwise"),
    "the square of a sum": ("for x in wave:\n            energy += x * x", "energy += wave.sum() ** 2", "rounding"),
    "an item's own value kept": (
        "torch.full((12,), 1.0 + index / 96)",
        "self.__dict__.setdefault('scale', torch.full((12,), 1.0 + index / 96))",
        "rounding",
    ),
    "a parameter left out": (LOOP, FOREACH.format("[*model.parameters()][1:]", "0.5"), "bitwise"),
    "the weights for the gradients": (
        LOOP,
        FOREACH.replace("grad", "data").format("model.parameters()", "0.5"),
        "rounding",
    ),
    "a factor that is off by a tenth": (LOOP, FOREACH.format("model.parameters()", "0.45"), "rounding"),
    "a gradient that is kept": (
        "optimizer.zero_grad()",
        "optimizer.zero_grad() if p is None else [each.grad.zero_() for each in [*model.parameters()][1:]]",
        "rounding",
    ),
    "an update made twice": (
        "optimizer.step()",
        "optimizer.step(), model[2].bias.data.add_(model[2].bias.grad, alpha=-0.1)",
        "rounding",
    ),
    "a batch changed on the way": ("model(x), y)", "model(x.roll(1, 1)), y)", "rounding"),
    "a draw too many": ("torch.randn(12) * 0.1", "torch.randn(2, 12)[0] * 0.1", "bitwise"),
}  # fmt: skip
RIGHT = {
    "bitwise": (LOOP, FOREACH.format("model.parameters()", "0.5")),
    "rounding": ("sum(wave[2:])", "wave[2:].sum()"),
}


def trained(guarded, folder, change, seeds=1):
    """What the guard sees of the script under a change of its text."""
    text = CODE.encode()
    edits = []
    if change is not None:
        old, new = (each.encode() for each in change)
        assert text.count(old) == 1
        edits = [Edit(text.index(old), text.index(old) + len(old), new.decode())]
    code = compiled(text, edits, "train.py")

    def train():
        namespace = {"__name__": "train"}
        exec(code, namespace)
        namespace["train"]()

    found = []
    for seed in range(seeds):
        here = folder / f"{seed}"
        here.mkdir(parents=True)
        random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
        found.append(guarded(here, train, seed=seed, epoch=6))
    return found


@pytest.fixture(scope="module")
def original(trainings, tmp_path_factory):
    return trained(trainings.guarded, tmp_path_factory.mktemp("original"), None, LEAST_SEEDS)


def judged(original, guarded, folder, change, numerics):
    seen = trained(guarded, folder, change, LEAST_SEEDS if numerics == "rounding" else 1)
    return bitwise(original[:1], seen) if numerics == "bitwise" else rewritten(original, seen, numerics)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rewrite_is_refused(name, original, trainings, tmp_path):
    old, new, numerics = WRONG[name]
    found = judged(original, trainings.guarded, tmp_path, (old, new), numerics)
    assert found.sameness is Sameness.DIFFERENT, found.reason


@pytest.mark.parametrize("numerics", RIGHT)
def test_a_right_one_is_not(numerics, original, trainings, tmp_path):
    found = judged(original, trainings.guarded, tmp_path, RIGHT[numerics], numerics)
    assert found.sameness is Sameness.SAME, found.reason
