"""What loadtune and pytorch-autotune choose for a job of tune_job.py, told as settings of hotlap's knobs.

usage: python bench/tune_peers.py data|compute|mixed loadtune|autotune [--seconds 60]
Each is given the part that it can tune in the form that it wants: loadtune a Workload, pytorch-autotune a model and a
batch. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import torch
from torch import nn

from tune_job import CLASSES, JOBS, Pictures, network


def parts(name: str) -> tuple[Pictures, nn.Module, int]:
    items, rounds, pixels, width, depth, batch = JOBS[name]
    torch.manual_seed(0)
    return Pictures(items, rounds, pixels), network(width, depth), batch


def with_loadtune(name: str, _: float) -> dict[str, Any]:
    """Its own defaults, in-process trials as its Python interface runs them."""
    from loadtune import Workload, tune

    data, _, batch = parts(name)

    def step(model: Any, optimizer: Any, given: Any, device: Any) -> Any:
        loss = nn.functional.cross_entropy(model(given[0].to(device)), given[1].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    workload = Workload(
        name=name,
        make_dataset=lambda: data,
        make_model=lambda: parts(name)[1],
        train_step=step,
        make_optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3),
        default_batch_size=batch,
    )
    result = tune(workload, verbose=False)
    better = result.best is not None and result.speedup > 1
    knobs = result.best.knobs if better else None
    settings: dict[str, Any] = {}
    if knobs is not None:
        settings |= {"num-workers": knobs.num_workers} if knobs.num_workers else {}
        settings |= {"prefetch-factor": knobs.prefetch_factor} if knobs.prefetch_factor else {}
        settings |= {"persistent-workers": True} if knobs.persistent_workers else {}
        settings |= {"precision": "bf16-mixed"} if knobs.amp else {}
        settings |= {"compile": "default"} if knobs.compile else {}
    return {"settings": settings, "threads": knobs.num_threads if knobs else None, "claims": result.speedup}


def with_autotune(name: str, seconds: float) -> dict[str, Any]:
    from pytorch_autotune import autotune

    _, model, batch = parts(name)
    pictures = torch.randn(batch, 3, JOBS[name][2], JOBS[name][2])
    labels = torch.randint(0, CLASSES, (batch,))
    result = autotune(
        model, (pictures, labels), budget=int(seconds), device="cpu", cache=False, verbose=False
    )
    config = result.config
    precisions = {"amp_bf16": "bf16-mixed", "amp_fp16": "16-mixed"}
    settings: dict[str, Any] = {}
    settings |= {"precision": precisions[config.precision]} if config.precision in precisions else {}
    settings |= {"compile": config.compile} if config.compile != "off" else {}
    settings |= {"channels-last": True} if config.channels_last else {}
    settings |= {"fused-optimizer": "fused"} if config.fused_opt else {}
    return {"settings": settings, "config": config.label}


PEERS = {"loadtune": with_loadtune, "autotune": with_autotune}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    print(json.dumps(PEERS[options.peer](options.job, options.seconds)))


if __name__ == "__main__":
    main()
