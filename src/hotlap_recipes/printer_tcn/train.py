"""Train the printer network: a plain PyTorch loop, the way such scripts are written.

    python -m hotlap_recipes.printer_tcn.train --data_dir "data_simulation_*" --size tiny --epochs 1

Exit codes: 0 trained, 1 the loss is not finite, 2 bad input.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from hotlap_recipes.printer_tcn import ERRORS, INPUTS, STATES
from hotlap_recipes.printer_tcn.dataset import (
    BadInputError,
    Item,
    Print,
    PrintWindows,
    Scalers,
    fit_scalers,
    load_prints,
    split_prints,
)
from hotlap_recipes.printer_tcn.model import WIDTHS, PrinterLoss, PrinterTCN

SIGNALS = (*INPUTS, *STATES, *ERRORS)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class NonFiniteLossError(Exception):
    """Training cannot go on. The message names the step."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add(
        "--data_dir",
        nargs="+",
        default=["data_simulation_*"],
        help="folders of .mat files, or a pattern for them",
    )
    add("--epochs", type=int, default=10)
    add("--batch_size", type=int, default=512)
    add("--lr", type=float, default=1e-3)
    add("--lambda_physics", type=float, default=0.5, help="weight of the physics loss")
    add("--num_workers", type=int, default=0)
    add("--prefetch_factor", type=int, help="batches that each worker prepares ahead")
    add("--cache_data", action="store_true", help="hold the normalised recordings in memory as tensors")
    add("--pre_normalize", action="store_true", help="normalise once at set-up, not in each item")
    add("--use_amp", action="store_true", help="mixed precision: float16 on a GPU, bfloat16 on a CPU")
    add("--use_torch_compile", action="store_true")
    add("--size", choices=sorted(WIDTHS), default="base")
    add("--seed", type=int, default=0)
    add("--out", type=Path, default=Path("printer_tcn.pt"), help="checkpoint of the best epoch by validation")
    options = parser.parse_args(arguments)
    check(options)
    return options


def check(options: argparse.Namespace) -> None:
    for name, least in (("epochs", 1), ("batch_size", 1), ("num_workers", 0), ("prefetch_factor", 1)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise BadInputError(f"--{name} is {value}.", f"give at least {least}.")
    if options.prefetch_factor is not None and options.num_workers == 0:
        raise BadInputError(
            f"--prefetch_factor {options.prefetch_factor} needs workers, and --num_workers is 0.",
            "add --num_workers 2, or leave --prefetch_factor out.",
        )

    if options.out.is_dir():
        raise BadInputError(
            f"--out {options.out} is a folder.", f"name a file, say {options.out / 'best.pt'}."
        )


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        train(parse(arguments))
    except BadInputError as error:
        print(error, file=sys.stderr)
        return 2
    except NonFiniteLossError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def train(options: argparse.Namespace) -> None:
    torch.manual_seed(options.seed)
    prints = load_prints(options.data_dir)
    train_prints, validation_prints = split_prints(prints, options.seed)
    scalers = fit_scalers(train_prints)
    train_loader = make_loader(train_prints, scalers, options, shuffle=True)
    validation_loader = make_loader(validation_prints, scalers, options, shuffle=False)
    print(
        f"{len(train_prints)} prints to train on, {len(validation_prints)} to validate, "
        f"{len(train_loader)} steps an epoch, on {DEVICE}",
        flush=True,
    )

    model = PrinterTCN(options.size).to(DEVICE)
    loss_of = PrinterLoss(scalers, prints[0].belt, options.lambda_physics).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    grad_scaler = torch.amp.GradScaler(DEVICE.type, enabled=options.use_amp and DEVICE.type == "cuda")
    if options.use_torch_compile:
        model.compile()

    best = float("inf")
    for epoch in range(1, options.epochs + 1):
        began = time.perf_counter()
        samples, trained = train_epoch(model, loss_of, optimizer, grad_scaler, train_loader, epoch, options)
        seconds = time.perf_counter() - began
        validation = validate(model, loss_of, validation_loader, epoch, options)
        print(
            f"epoch {epoch}/{options.epochs}  loss {trained:.4f}  validation {validation:.4f}  "
            f"trained {samples} samples in {seconds:.1f} s, {samples / seconds:.0f} samples/s",
            flush=True,
        )
        if validation < best:
            best = validation
            save(options, model, scalers, epoch, validation)


def make_loader(
    prints: Sequence[Print], scalers: Scalers, options: argparse.Namespace, shuffle: bool
) -> DataLoader[Item]:
    windows = PrintWindows(prints, scalers, options.pre_normalize, options.cache_data)
    return DataLoader(
        windows,
        batch_size=options.batch_size,
        shuffle=shuffle,
        num_workers=options.num_workers,
        prefetch_factor=options.prefetch_factor,
    )


def train_epoch(
    model: PrinterTCN,
    loss_of: PrinterLoss,
    optimizer: torch.optim.Optimizer,
    grad_scaler: torch.amp.GradScaler,
    loader: DataLoader[Item],
    epoch: int,
    options: argparse.Namespace,
) -> tuple[int, float]:
    """One pass over the training windows. Returns how many were trained on, and their mean loss."""
    model.train()
    samples, summed = 0, 0.0
    for step, batch in enumerate(loader, start=1):
        inputs, states, errors = (tensor.to(DEVICE) for tensor in batch)
        optimizer.zero_grad()
        with autocast(options.use_amp):
            outputs = model(inputs)
        losses = loss_of(outputs, (inputs, states, errors))
        loss = losses.total.item()
        require_finite(loss, f"epoch {epoch}, step {step}", batch, options.lr)
        grad_scaler.scale(losses.total).backward()
        grad_scaler.step(optimizer)
        grad_scaler.update()
        samples += len(inputs)
        summed += loss * len(inputs)
    return samples, summed / samples


def validate(
    model: PrinterTCN, loss_of: PrinterLoss, loader: DataLoader[Item], epoch: int, options: argparse.Namespace
) -> float:
    """The mean squared error of states and errors, in standard deviations, without the physics."""
    model.eval()
    samples, summed = 0, 0.0
    with torch.no_grad():
        for step, batch in enumerate(loader, start=1):
            inputs, states, errors = (tensor.to(DEVICE) for tensor in batch)
            with autocast(options.use_amp):
                outputs = model(inputs)
            loss = loss_of(outputs, (inputs, states, errors)).data.item()
            require_finite(loss, f"epoch {epoch}, validation step {step}", batch, options.lr)
            samples += len(inputs)
            summed += loss * len(inputs)
    return summed / samples


def autocast(use_amp: bool) -> torch.autocast:
    dtype = torch.float16 if DEVICE.type == "cuda" else torch.bfloat16
    return torch.autocast(DEVICE.type, dtype=dtype, enabled=use_amp)


def require_finite(loss: float, place: str, batch: Sequence[torch.Tensor], lr: float) -> None:
    if math.isfinite(loss):
        return
    signals = torch.cat(tuple(batch), dim=-1)
    faulty = [
        name for name, values in zip(SIGNALS, signals.unbind(-1), strict=True) if not values.isfinite().all()
    ]
    what, remedy = f"the loss is {loss} at {place}", f"lower --lr, now {lr:g}."
    if faulty:
        what, remedy = f"{what}: the batch is not finite in {', '.join(faulty)}", "mend the .mat files."
    raise NonFiniteLossError(f"{what}.\n  -> {remedy}")


def save(
    options: argparse.Namespace, model: PrinterTCN, scalers: Scalers, epoch: int, validation: float
) -> None:
    """Plain tensors and numbers, so that `torch.load` reads them without running code."""
    scales = {
        name: {"mean": torch.tensor(scaler.mean_), "std": torch.tensor(scaler.scale_)}
        for name, scaler in scalers._asdict().items()
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    torch.save(
        {
            "model": model.state_dict(),
            "size": options.size,
            "scales": scales,
            "epoch": epoch,
            "validation": validation,
        },
        options.out,
    )


if __name__ == "__main__":
    sys.exit(main())
