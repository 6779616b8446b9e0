"""The training job of `hotlap selftest`, whose answers are known. It runs as a script and needs nothing but torch.

`stages` sleeps for a known time in each stage that is named, `workers` has items that sleep and an optimizer that goes
tensor by tensor, `overhead` attaches the probe and detaches it again in turns. Each writes answers.json.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

ANSWERS = "answers.json"
ROWS, WIDTH = 16, 64
SLEEP_S = 0.003  # of an item, in the job for workers
LEAST_STEP_S = 0.005  # of the job for overhead: shorter steps are not what one trains
BLOCKS, BLOCK_STEPS, WARM_UP_STEPS = 8, 60, 20  # the probe looks for new modules up to the 16th step


class Delays:
    """Milliseconds to sleep by stage, and how long each sleep really was."""

    def __init__(self, wanted: dict[str, float]) -> None:
        self.wanted = wanted
        self.taken: dict[str, list[float]] = {stage: [] for stage in wanted}

    def __call__(self, stage: str) -> None:
        if stage in self.wanted:
            begun = time.perf_counter()
            time.sleep(self.wanted[stage] / 1e3)
            self.taken[stage].append((time.perf_counter() - begun) * 1e3)

    def copy(self, payload: torch.Tensor, device: str) -> None:
        """Nothing can sleep inside a copy: real ones are made until the time is up."""
        taken = 0.0
        while taken < self.wanted.get("transfer", 0.0):
            begun = time.perf_counter()
            copied = payload.to(device)
            taken += (time.perf_counter() - begun) * 1e3
            del copied
        if taken:
            self.taken["transfer"].append(taken)


class Items(Dataset[tuple[torch.Tensor, int]]):
    """The first item of a batch takes the delay; `sleep_s` is taken by each."""

    def __init__(self, count: int, delays: Delays, sleep_s: float = 0.0) -> None:
        self.count, self.delays, self.sleep_s = count, delays, sleep_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index % ROWS == 0:
            self.delays("data")
        if self.sleep_s:
            time.sleep(self.sleep_s)
        return torch.full((WIDTH,), index % 97 / 97), int(get_worker_info() is not None)


class Net(nn.Module):
    def __init__(self, delays: Delays, width: int = WIDTH) -> None:
        super().__init__()
        self.delays = delays
        self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.delays("forward")
        output: torch.Tensor = self.layers(x)
        return output


class SlowStream(logging.StreamHandler[Any]):
    def __init__(self, delays: Delays) -> None:
        super().__init__()
        self.delays = delays

    def emit(self, record: logging.LogRecord) -> None:
        self.delays("log")
        super().emit(record)


class SlowToPickle:
    def __init__(self, delays: Delays) -> None:
        self.delays = delays

    def __reduce__(self) -> tuple[type, tuple[()]]:
        self.delays("checkpoint")
        return (dict, ())


def device_here() -> str:
    """The accelerator that torch has, whichever it is; else the CPU."""
    general = getattr(torch, "accelerator", None)
    if general is not None:
        found = general.current_accelerator()
        return found.type if found is not None and general.is_available() else "cpu"
    kinds = ("cuda", "xpu", "mps")
    return next((kind for kind in kinds if (own := getattr(torch, kind, None)) and own.is_available()), "cpu")


def validate(model: Net, held_out: torch.Tensor, delays: Delays) -> None:
    model.eval()
    with torch.no_grad():
        model(held_out)
    delays("validate")
    model.train()


def stages(device: str, steps: int, wanted: dict[str, float]) -> dict[str, Any]:
    """Logs, validates and saves in every step."""
    delays = Delays(wanted)
    logger = logging.getLogger("selftest")
    logger.setLevel(logging.INFO)
    logger.addHandler(SlowStream(delays))
    payload, held_out = torch.zeros(1_000_000), torch.zeros(ROWS, WIDTH, device=device)
    model = Net(delays).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, _ in DataLoader(Items(steps * ROWS, delays), batch_size=ROWS):
        delays.copy(payload, device)
        loss = model(x.to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        logger.info("loss %.6f", loss.item())
        validate(model, held_out, delays)
        checkpoint = {"model": model.state_dict(), "extra": SlowToPickle(delays)}
        torch.save(
            checkpoint, io.BytesIO()
        )  # a disk takes longer now and then, which would be no fault of hotlap's
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    return {"planted": {stage: sorted(each)[len(each) // 2] for stage, each in delays.taken.items()},
            "parameters": digest.hexdigest()}  # fmt: skip


def workers(device: str, steps: int) -> dict[str, Any]:
    """How many items workers made, and how the optimizer went, as the job itself sees it."""
    model = Net(Delays({})).to(device)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    by_workers = 0
    for x, from_worker in DataLoader(Items(steps * ROWS, Delays({}), SLEEP_S), batch_size=ROWS):
        loss = model(x.to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        by_workers += int(from_worker.sum())
    return {
        "by_workers": by_workers,
        "items": steps * ROWS,
        "foreach": bool(optimizer.param_groups[0]["foreach"]),
    }


@contextmanager
def watched(on: bool) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        session: Any = None
        if on:
            from hotlap.probe.attach import attach

            session = attach(Path(folder), time.perf_counter_ns(), [])
        try:
            yield
        finally:
            if session is not None:
                session.detach()


def overhead(device: str) -> dict[str, Any]:
    """Seconds of a step in blocks, without the probe and with it in turns."""
    model = Net(Delays({}), 512).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def block(rows: int, steps: int, on: bool) -> float:
        batches: Any = [(torch.ones(rows, 512),)] * (WARM_UP_STEPS + steps)
        with watched(on):
            begun = 0.0
            for step, (x,) in enumerate(DataLoader(batches, batch_size=None)):
                if step == WARM_UP_STEPS:
                    begun = time.perf_counter()
                loss = model(x.to(device)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                loss.item()
            return (time.perf_counter() - begun) / steps

    rows = ROWS
    while block(rows, 4, False) < LEAST_STEP_S and rows < 1 << 17:
        rows *= 2
    seconds: dict[str, list[float]] = {"without": [], "with": []}
    for turn in range(BLOCKS):
        for name in ("without", "with") if turn % 2 == 0 else ("with", "without"):
            seconds[name].append(block(rows, BLOCK_STEPS, name == "with"))
    return seconds


def named(device: str) -> str:
    try:
        return str(torch.get_device_module(device).get_device_name())
    except (AttributeError, RuntimeError, TypeError):  # the CPU and MPS have no name
        return device


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("stages", "workers", "overhead"))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--delays", type=json.loads, default={})
    parser.add_argument("--hotlap", help="the folder that hotlap lies in, for `overhead`")
    options = parser.parse_args()
    torch.manual_seed(0)
    device = device_here()
    if options.part == "stages":
        found = stages(device, options.steps, options.delays)
    elif options.part == "workers":
        found = workers(device, options.steps)
    else:
        sys.path.append(options.hotlap)  # last: what the job's environment has is not hidden
        found = overhead(device)
    about = {"device": device, "name": named(device), "torch": torch.__version__}
    Path(ANSWERS).write_text(json.dumps({**about, **found}))


if __name__ == "__main__":
    main()
