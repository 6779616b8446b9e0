"""A raw loop with a delay of known size in one stage, every `--every` steps.

It times each delay itself, since sleeping takes a little longer than asked for, and writes them to
planted.json; only those inside loader workers cannot be summed up from here.
"""

import argparse
import json
import logging
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--stage", required=True)
parser.add_argument("--ms", type=float, default=20.0)
parser.add_argument("--every", type=int, default=1)
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--workers", type=int, default=0)
args = parser.parse_args()

BATCH, WIDTH = 32, 256
planted = []


def delay():
    started = time.perf_counter()
    time.sleep(args.ms / 1000)
    planted.append(time.perf_counter() - started)


def copy_for_a_while(payload):
    """Nothing of ours runs inside a copy, so it cannot sleep: real copies are made until the time is up.

    `copy=True` makes the CPU copy what a GPU would have been sent.
    """
    started = time.perf_counter()
    while time.perf_counter() - started < args.ms / 1000:
        payload.to("cpu", copy=True)
    planted.append(time.perf_counter() - started)


class Items(Dataset):
    def __len__(self):
        return BATCH * args.steps

    def __getitem__(self, index):
        batch, first = divmod(index, BATCH)
        if args.stage == "data" and first == 0 and batch % args.every == 0:
            delay()
        return torch.full((WIDTH,), index / len(self)), index % 10


class SlowBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        if due["backward"]:
            delay()
        return gradient


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))

    def forward(self, x):
        if due["forward"] and self.training:
            delay()
        return SlowBackward.apply(self.layers(x))


class SlowSGD(torch.optim.SGD):
    def step(self, closure=None):
        if due["optimizer"]:
            delay()
        return super().step(closure)


class SlowStream(logging.StreamHandler):
    def emit(self, record):
        delay()
        super().emit(record)


class SlowToPickle:
    def __reduce__(self):
        delay()
        return (dict, ())


def validate(model, batches):
    model.eval()
    with torch.no_grad():
        for x, _ in batches:
            model(x)
    delay()
    model.train()


if __name__ == "__main__":
    torch.manual_seed(0)
    due = dict.fromkeys(
        ("forward", "backward", "optimizer", "transfer", "log", "validate", "checkpoint", "other"), False
    )
    logger = logging.getLogger("planted")
    logger.setLevel(logging.INFO)
    logger.addHandler(SlowStream())
    payload = torch.zeros(1_000_000)
    held_out = [(torch.zeros(BATCH, WIDTH), None)] * 2
    model = Net()
    optimizer = SlowSGD(model.parameters(), lr=0.01)
    loader = DataLoader(Items(), batch_size=BATCH, num_workers=args.workers)
    for step, (x, y) in enumerate(loader):
        due[args.stage] = step % args.every == 0
        if due["transfer"]:
            copy_for_a_while(payload)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if due["log"]:
            logger.info("step %d", step)
        if due["validate"]:
            validate(model, held_out)
        if due["checkpoint"]:
            torch.save({"model": model.state_dict(), "extra": SlowToPickle()}, "checkpoint.pt")
        if due["other"]:
            delay()
    Path("planted.json").write_text(
        json.dumps({"count": len(planted), "seconds": sum(planted), "each": planted})
    )
