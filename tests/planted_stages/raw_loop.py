"""A raw loop that logs, validates and saves in every step, with a delay of known size in one stage.

It times each delay and each stage itself, since sleeping takes a little longer than asked for, and writes both to
planted.json; only the delays inside loader workers cannot be known from here.
"""

import argparse
import contextlib
import json
import logging
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--stage", required=True, help="one, or several with commas; `none` plants nothing")
parser.add_argument("--ms", type=float, default=20.0)
parser.add_argument("--every", type=int, default=1, help="steps between two delays")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--workers", type=int, default=0)
args = parser.parse_args()

BATCH, WIDTH = 32, 256
planted = {stage: [] for stage in args.stage.split(",")}
clock = {}  # milliseconds by stage and step, as the script's own stopwatch says
step = 0


@contextlib.contextmanager
def stopwatch(stage):
    started = time.perf_counter()
    yield
    steps = clock.setdefault(stage, {})
    steps[step] = steps.get(step, 0.0) + (time.perf_counter() - started) * 1e3


def due(stage, at=None):
    return stage in planted and (step if at is None else at) % args.every == 0


def delay(stage, at=None):
    if due(stage, at):
        started = time.perf_counter()
        time.sleep(args.ms / 1000)
        planted[stage].append(time.perf_counter() - started)


def copy_for_a_while(payload):
    """Nothing of ours runs inside a copy, so it cannot sleep: real copies are made until the time is up.

    `copy=True` makes the CPU copy what a GPU would have been sent.
    """
    while clock.get("transfer", {}).get(step, 0.0) < args.ms:
        with stopwatch("transfer"):
            copied = payload.to("cpu", copy=True)
        del copied  # giving its memory back is no copying
    planted["transfer"].append(clock["transfer"][step] / 1e3)


class Items(Dataset):
    def __len__(self):
        return BATCH * args.steps

    def __getitem__(self, index):
        batch, place_in_batch = divmod(index, BATCH)
        if place_in_batch == 0:
            delay("data", at=batch)
        return torch.full((WIDTH,), index / len(self)), index % 10


class SlowBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        delay("backward")
        return gradient


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))

    def forward(self, x):
        if self.training:
            delay("forward")
        return SlowBackward.apply(self.layers(x))


class SlowSGD(torch.optim.SGD):
    def step(self, closure=None):
        delay("optimizer")
        return super().step(closure)


class SlowStream(logging.StreamHandler):
    def emit(self, record):
        delay("log")
        super().emit(record)


class SlowToPickle:
    def __reduce__(self):
        delay("checkpoint")
        return (dict, ())


def validate(model, batches):
    model.eval()
    with torch.no_grad():
        for x, _ in batches:
            model(x)
    delay("validate")
    model.train()


if __name__ == "__main__":
    torch.manual_seed(0)
    logger = logging.getLogger("planted")
    logger.setLevel(logging.INFO)
    logger.addHandler(SlowStream())
    payload = torch.zeros(1_000_000)
    held_out = [(torch.zeros(BATCH, WIDTH), None)] * 2
    model = Net()
    optimizer = SlowSGD(model.parameters(), lr=0.01)
    loader = DataLoader(Items(), batch_size=BATCH, num_workers=args.workers)
    batches = iter(loader)
    while step < args.steps:
        with stopwatch("data"):
            x, y = next(batches)
        if due("transfer"):
            copy_for_a_while(payload)
        with stopwatch("forward"):
            loss = nn.functional.cross_entropy(model(x), y)
        with stopwatch("optimizer"):
            optimizer.zero_grad()
        with stopwatch("backward"):
            loss.backward()
        with stopwatch("optimizer"):
            optimizer.step()
        with stopwatch("log"):
            logger.info("step %d", step)
        with stopwatch("validate"):
            validate(model, held_out)
        with stopwatch("checkpoint"):
            torch.save({"model": model.state_dict(), "extra": SlowToPickle()}, "checkpoint.pt")
        with stopwatch("other"):
            delay("other")
        step += 1
    Path("planted.json").write_text(json.dumps({"steps": args.steps, "seconds": planted, "clock": clock}))
