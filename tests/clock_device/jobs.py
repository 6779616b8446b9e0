"""Planted jobs for the clock device: raw training loops, and by arithmetic what a step of each takes.

`truth` is milliseconds of a step on its critical path, by stage, and `idle` what the device waits for the host; `waits`
is what the host waits inside calls that read a value. None of it comes from the probe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import clock_device as clock

WIDTH, ROWS, LAYERS = 8, 16, 2
BATCH_BYTES = ROWS * WIDTH * 4
STEPS = 30


@dataclass(frozen=True)
class Job:
    """Milliseconds of a step on the device, and of the host where it says so."""

    name: str
    forward: float = 4.0
    backward: float = 9.0
    optimizer: float = 2.0
    copy: float = 0.0
    data: float = 0.0  # the host makes a batch
    log: float = 0.0  # the host writes something down after the step
    launch: float = 0.0001  # the host starts one operator
    pinned: bool = False
    non_blocking: bool = False
    prefetch: bool = False  # the next batch is copied on a stream of its own
    read: str = "loss"  # where the host reads a value: loss, middle, library, synchronize, or nowhere
    accumulate: int = 1
    devices: int = 1
    depth: int = 1024  # operators that a stream takes
    between: float = 0.0  # the device does something between forward and backward: the loss
    clip: float = 0.0  # between backward and the optimizer's step

    @property
    def blocks(self) -> bool:
        """Whether the host waits at each copy, and with it for what was queued before."""
        return not (self.pinned and self.non_blocking)

    @property
    def compute(self) -> float:
        return self.accumulate * (self.forward + self.between + self.backward) + self.clip + self.optimizer

    @property
    def exposed(self) -> float:
        """Of the copies; on a stream of their own what is longer than the rest of the step."""
        return max(0.0, self.copy - self.compute) if self.prefetch else self.accumulate * self.copy

    @property
    def hidden(self) -> float:
        """What the host does while the device is busy."""
        later = (self.accumulate - 1) * self.data  # a batch is made while the device works at the one before
        if self.devices > 1 and self.read:
            return min(self.data, self.backward / 3)  # the device that is waited for is through earlier
        if self.read == "middle":
            return min(self.data + self.log, self.forward / 2 + self.backward + self.optimizer)
        if self.read:
            return later
        return min(self.data + self.log, self.compute + (0.0 if self.blocks else self.exposed))

    @property
    def truth(self) -> Mapping[str, float]:
        """A job makes batches or writes something down, not both: then what is not hidden is of that stage."""
        idle = self.accumulate * self.data + self.log - self.hidden
        return {
            "data": idle if self.data else 0.0,
            "transfer": self.exposed,
            "forward": self.accumulate * (self.forward + self.between),
            "backward": self.accumulate * self.backward,
            "optimizer": self.clip + self.optimizer,
            "other": idle if self.log else 0.0,
            "idle": idle,
            "step": self.compute + self.exposed + idle,
        }

    @property
    def waits(self) -> float | None:
        """Milliseconds of a step in calls that read a value; None where it is no simple sum."""
        if self.read not in ("loss", "library", "synchronize") or self.accumulate > 1 or self.devices > 1:
            return None if self.read else 0.0
        return self.compute + (0.0 if self.blocks else self.exposed)

    @property
    def first_wait(self) -> float:
        """Milliseconds by which the first of these calls waits longer: nothing hides the first batch's copy."""
        return min(self.copy, self.compute) if self.prefetch else 0.0


class Net(nn.Module):
    def __init__(self, job: Job) -> None:
        super().__init__()
        self.reads = job.read == "middle"
        places = [f"clock:{index * job.devices // LAYERS}" for index in range(LAYERS)]
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH).to(place) for place in places)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(self.layers):
            x = layer(x if x.device == layer.weight.device else x.to(layer.weight.device))
            if self.reads and index == 0:
                x.flatten()[0].item()
        return x


class Batches(Dataset[torch.Tensor]):
    """Making an item takes the host its share of the batch's time."""

    def __init__(self, job: Job) -> None:
        self.each = int(job.data * clock.MS / ROWS)

    def __len__(self) -> int:
        return ROWS * 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        clock.spend(self.each)
        return torch.full((WIDTH,), float(index % 7))


def plan(job: Job) -> None:
    """A layer is one `addmm`; backward is two products for each, but for the first, whose input wants no gradient. The
    optimizer, which maximises, begins with the negative of each of two gradients for a layer."""
    ms, byte = clock.MS, job.copy * clock.MS / BATCH_BYTES
    clock.plan(
        {
            "addmm": int(job.forward / LAYERS * ms),
            "mm": int(job.backward / (2 * LAYERS - 1) * ms),
            "neg": int(job.optimizer / (2 * LAYERS) * job.devices * ms),
            "mean": int(job.between * ms),
            "clamp": int(job.clip * ms),
        },
        launch=int(job.launch * ms),
        pinned=byte if job.devices == 1 else 0.0,
        pageable=byte,
        depth=job.depth,
    )


def train(job: Job, library: Any, steps: int = STEPS) -> nn.Module:
    """The script, as users write it."""
    torch.manual_seed(0)
    model = Net(job)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, maximize=True)
    loader = DataLoader(Batches(job), batch_size=ROWS, pin_memory=job.pinned)
    batches = prefetched(loader) if job.prefetch else copied(loader, job)
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(job.accumulate):
            output = model(next(batches))
            loss = output.square().mean()
            loss.backward()
        if job.clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if job.read == "loss":
            loss.item()
        elif job.read == "library":
            library.record(loss)
        elif job.read == "synchronize":
            torch.accelerator.synchronize()
        clock.spend(int(job.log * clock.MS))
    clock.spend(clock.MS * 1000)  # the script goes on with something else, until the device is through
    return model


def copied(loader: DataLoader[Any], job: Job) -> Iterator[torch.Tensor]:
    for batch in loader:
        yield batch.to("clock", non_blocking=job.non_blocking) if job.copy else batch.to("clock")


def prefetched(loader: DataLoader[Any]) -> Iterator[torch.Tensor]:
    """Copies the next batch while the device works at this one."""
    beside, batches = torch.Stream("clock"), iter(loader)

    def fetch() -> torch.Tensor:
        batch = next(batches)
        with clock.stream(beside):
            return batch.to("clock", non_blocking=True)

    ahead = fetch()
    while True:
        torch.accelerator.current_stream().wait_stream(beside)
        batch, ahead = ahead, fetch()
        yield batch


_BASE = Job("")


def _jobs() -> Iterator[Job]:
    for scale in (0.5, 2.0, 20.0):
        sized = replace(_BASE, forward=4.0 * scale, backward=9.0 * scale, optimizer=2.0 * scale)
        yield replace(sized, name=f"compute-{scale}")
        yield replace(sized, name=f"compute-unread-{scale}", read="", depth=24)
        yield replace(sized, name=f"data-{scale}", data=8.0 * scale)
        yield replace(sized, name=f"pageable-{scale}", copy=5.0 * scale)
        yield replace(sized, name=f"pageable-unread-{scale}", copy=5.0 * scale, read="")
        yield replace(sized, name=f"hidden-data-{scale}", copy=5.0 * scale, data=6.0 * scale, read="")
        yield replace(sized, name=f"late-data-{scale}", copy=2.0 * scale, data=20.0 * scale, read="")
        asynchronous = replace(sized, pinned=True, non_blocking=True)
        yield replace(asynchronous, name=f"async-{scale}", copy=5.0 * scale)
        prefetching = replace(asynchronous, prefetch=True)
        yield replace(prefetching, name=f"prefetch-hides-{scale}", copy=7.0 * scale)
        yield replace(prefetching, name=f"prefetch-short-{scale}", copy=20.0 * scale)
        yield replace(sized, name=f"accumulate-{scale}", accumulate=3, copy=1.0 * scale)
    for read in ("loss", "library", "synchronize", "middle"):
        yield replace(_BASE, name=f"read-{read}", read=read, log=4.0)
    yield replace(_BASE, name="read-middle-data", read="middle", data=25.0)
    yield replace(_BASE, name="logging", log=9.0)
    yield replace(_BASE, name="costly-loss", between=6.0)
    yield replace(_BASE, name="costly-clip", clip=5.0)
    yield replace(_BASE, name="two-devices", devices=2)
    yield replace(_BASE, name="two-devices-unread", devices=2, read="", depth=24)
    yield replace(_BASE, name="two-devices-data", devices=2, data=6.0)
    yield replace(_BASE, name="accumulate-clip", accumulate=2, clip=4.0, data=1.0)


JOBS = tuple(_jobs())
