"""Runs of the guard on small trainings: each in a fork of the test's process, so that nothing of it is left."""

from __future__ import annotations

import os
import random
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # by the first optimizer: once, not in every fork
from torch import nn
from torch.utils.data import DataLoader, Dataset

from hotlap.facts import codec
from hotlap.facts.verdict import Witness
from hotlap.launch.environment import PUT
from hotlap.plan.catalogue import some_knobs
from hotlap.probe import witness
from hotlap.probe.reference import Reference
from hotlap.seams import loader, optimizer, step
from hotlap.seams.fitter import Fitter
from hotlap.seams.patches import PatchStack

KINDS, ITEMS, BATCH = 8, 1200, 8


def guarded(
    folder: Path,
    train: Callable[[], None],
    reference: str = "",
    *,
    seed: int = 0,
    samples: int = 0,
    steps: int = 24,
    epoch: int = 12,
    **settings: Any,
) -> Witness | None:
    """What the guard has seen of it; None where it did not get so far."""
    child = os.fork()
    if not child:
        try:
            warnings.simplefilter("ignore")  # of the frameworks' own
            named = {key.replace("_", "-"): value for key, value in settings.items()}
            fitter = Fitter(named, some_knobs(named))
            for seam in (loader, optimizer, step):
                seam.install(fitter)
            path = Path(reference.removeprefix(PUT))
            asked = Reference(path, puts=reference.startswith(PUT)) if reference else None
            witness.install(folder, witness.Wanted(steps, seed, samples, epoch), PatchStack().wrap, asked)
            train()
        except SystemExit:
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    os.waitpid(child, 0)
    written = folder / f"{child}{witness.ENDING}"
    return codec.read_json(written, Witness) if written.exists() else None


class Clips(Dataset):
    """Tokens that name their class; the longer a clip is, the more of it is noise."""

    def __init__(self):
        draws = random.Random(7)
        self.lengths = [min(48, 2 + int(draws.expovariate(0.1))) for _ in range(ITEMS)]
        self.labels = [draws.randrange(KINDS) for _ in range(ITEMS)]
        self.clips = [
            torch.tensor(
                [
                    1 + (draws.randrange(KINDS) if draws.random() < min(0.9, length / 24) else label)
                    for _ in range(length)
                ]
            )
            for length, label in zip(self.lengths, self.labels, strict=True)
        ]

    def __len__(self):
        return ITEMS

    def __getitem__(self, index):
        return self.clips[index], self.labels[index]


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(KINDS + 1, 24, padding_idx=0)
        self.out = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, KINDS))

    def forward(self, tokens):
        there = (tokens > 0).unsqueeze(-1)
        return self.out((self.tokens(tokens) * there).sum(1) / there.sum(1))


def padded(items):
    tokens = nn.utils.rnn.pad_sequence([each for each, _ in items], batch_first=True)
    return tokens, torch.tensor([label for _, label in items])


def ahead(loader):
    """As frameworks fetch: the next batch before this one is trained on."""
    batches = iter(loader)
    this = next(batches)
    for following in batches:
        yield this
        this = following
    yield this


def clips(planted: str = "", rate: float = 1.0, most: int = 10_000) -> Callable[[], None]:
    """A loop of one's own over clips, whose short ones are easier; `most` steps of it."""

    def train():
        dataset, model = Clips(), Pooled()
        stepper = torch.optim.Adam(model.parameters(), lr=0.01 * rate)
        made = 0
        while made < most:
            order = None
            if planted == "repeats":
                order = [index for index in torch.randperm(ITEMS).tolist() for _ in range(2)]
            train_loader = DataLoader(dataset, BATCH, shuffle=order is None, sampler=order, collate_fn=padded)
            for tokens, labels in ahead(train_loader) if planted == "ahead" else train_loader:
                loss = nn.functional.cross_entropy(model(tokens), labels)
                stepper.zero_grad()
                loss.backward()
                made += 1
                if planted == "forgets" and made % 3:  # two of three updates
                    for each in model.parameters():
                        each.grad.zero_()
                stepper.step()
                if made == most:
                    break

    return train


def without_a_loader():
    model = nn.Linear(4, 1)
    stepper = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        model(torch.randn(8, 4)).square().mean().backward()
        stepper.step()


def with_two_loaders():
    model = nn.Linear(4, 1)
    stepper = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        pairs = zip(DataLoader(torch.randn(400, 4), 4), DataLoader(torch.randn(200, 4), 2), strict=True)
        for one, other in pairs:
            (model(one).mean() + model(other).square().mean()).backward()
            stepper.step()


class Counting(nn.Linear):
    """Its answers depend on how often it was called: a buffer says so."""

    def __init__(self):
        super().__init__(4, 1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, rows):
        self.calls += 1
        return super().forward(rows) + self.calls


def that_counts():
    """Also validates after each epoch, and changes its batches in place."""
    model = Counting()
    stepper = torch.optim.SGD(model.parameters(), lr=0.0)
    rows, others = torch.ones(160, 4), torch.ones(32, 4)
    while True:
        for batch in DataLoader(rows, 8, shuffle=True):
            model(batch.mul_(2)).mean().backward()
            stepper.step()
        with torch.no_grad():
            for batch in DataLoader(others, 8):
                model(batch)


def with_accelerate():
    from accelerate import Accelerator

    accelerator, model = Accelerator(cpu=True), Pooled()
    loader = DataLoader(Clips(), BATCH, shuffle=True, collate_fn=padded)
    model, stepper, loader = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.0), loader)
    while True:
        for tokens, labels in loader:
            stepper.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(model(tokens), labels))
            stepper.step()


def with_lightning():
    """It computes the gradients in a closure of the optimizer's step."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Pooled()

        def training_step(self, batch, _):
            return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0, momentum=0.9)

    quiet = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    trainer = lightning.Trainer(max_epochs=50, accelerator="cpu", **quiet)
    trainer.fit(Module(), DataLoader(Clips(), BATCH, shuffle=True, collate_fn=padded))
