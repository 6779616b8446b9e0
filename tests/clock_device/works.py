"""What torch does on the clock device, printed as JSON. One process for many questions."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import clock_device as clock

MS = clock.MS


def trained(device: str) -> list[list[float]]:
    """Losses of small models of several kinds; the same seeds, whatever the device."""
    losses = []
    kinds: list[tuple[nn.Module, torch.Tensor]] = [
        (nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 4)), torch.randn(6, 8)),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten()), torch.randn(2, 3, 6, 6)),
        (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), torch.randn(2, 5, 8)),
        (nn.Sequential(nn.Embedding(10, 6), nn.GELU()), torch.randint(0, 10, (4, 3))),
    ]
    for build in (torch.optim.SGD, torch.optim.AdamW):
        for model, inputs in kinds:
            model.to(device)
            optimizer = build(model.parameters(), lr=0.01)
            series = []
            for _ in range(3):
                output = model(inputs.to(device))
                loss = (output[0] if isinstance(output, tuple) else output).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                series.append(loss.item())
            losses.append(series)
    return losses


def same_results() -> list[list[list[float]]]:
    found = []
    for device in ("cpu", "clock"):
        torch.manual_seed(0)
        found.append(trained(device))
    return found


def times() -> dict[str, Any]:
    clock.plan({"mm": 5 * MS}, pinned=1.0, pageable=2.0)
    x = torch.randn(100, 100, device="clock")
    first, last = (torch.Event("clock", enable_timing=True) for _ in range(2))
    begun = clock.now()
    first.record()
    x @ x
    last.record()
    queued, done = clock.now() - begun, last.query()
    torch.accelerator.synchronize()
    waited, host = clock.now() - begun, torch.randn(1000)
    begun = clock.now()
    host.to("clock", non_blocking=True)
    pageable = clock.now() - begun
    held, begun = host.pin_memory(), clock.now()
    held.to("clock", non_blocking=True)
    asynchronous = clock.now() - begun
    held.to("clock")
    pinned = clock.now() - begun
    return {
        "queued": queued, "done": done, "waited": waited, "elapsed": first.elapsed_time(last), "pageable": pageable,
        "asynchronous": asynchronous, "pinned": pinned, "counts": clock.counts(),
    }  # fmt: skip


def streams() -> dict[str, int]:
    """Two products side by side, and one after the other where the second stream waits for the first."""
    found = {}
    for name in ("beside", "after"):
        clock.plan({"mm": 5 * MS})
        x, side, begun = torch.randn(4, 4, device="clock"), torch.Stream("clock"), clock.now()
        main = torch.accelerator.current_stream()
        x @ x
        with clock.stream(side):
            if name == "after":
                side.wait_stream(main)
            x @ x
        torch.accelerator.synchronize()
        found[name] = clock.now() - begun
    return found


def memory() -> dict[str, Any]:
    clock.plan(memory=8 << 20)
    before = torch.accelerator.memory_allocated()
    held = torch.zeros(1 << 20, dtype=torch.uint8, device="clock")
    grown = torch.accelerator.memory_allocated() - before
    try:
        torch.zeros(1 << 24, dtype=torch.uint8, device="clock")
        error = ""
    except torch.OutOfMemoryError as raised:
        error = str(raised)
    del held
    total = torch.accelerator.get_memory_info()[1]
    return {
        "grown": grown,
        "left": torch.accelerator.memory_allocated() - before,
        "error": error,
        "total": total,
    }


def pinning() -> list[bool]:
    loader = DataLoader(TensorDataset(torch.randn(8, 2)), batch_size=4, pin_memory=True)
    return [batch[0].is_pinned() for batch in loader]


def devices() -> list[str]:
    clock.plan()
    one, two = nn.Linear(4, 4).to("clock:0"), nn.Linear(4, 4).to("clock:1")
    two(one(torch.randn(2, 4, device="clock:0")).to("clock:1")).sum().backward()
    return [str(layer.weight.grad.device) for layer in (one, two) if layer.weight.grad is not None]


print(
    json.dumps(
        {
            "accelerator": str(torch.accelerator.current_accelerator()),
            "same": same_results(),
            "times": times(),
            "streams": streams(),
            "memory": memory(),
            "pinning": pinning(),
            "devices": devices(),
        }
    )
)
