"""What the guard says of plans that change the batches: of simulated runs, and of small real ones.

usage: python bench/guard_power.py [--plans 3000] [--answers 4]
Simulated: by how far the plan's mean loss truly lies off. Runs scatter from seed to seed, and those of the plan draw
other batches, so that the same seed pairs nothing. Real: small jobs with settings that are right and with some that are
planted to be wrong, judged on reference batches and, beside it, on the batches of their training. Three seeds, then
five, eight and twelve, as `tune` asks for them; each answer has seeds of its own.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the jobs are small, and forked

import torch
import torch._dynamo  # by the first optimizer: once, not in every run
from torch import nn
from torch.utils.data import DataLoader, Dataset

from hotlap.facts import codec
from hotlap.facts.verdict import Guarded, Sameness, Witness
from hotlap.judge.guard import chance, close
from hotlap.plan.catalogue import some_knobs
from hotlap.probe import witness
from hotlap.probe.reference import Reference
from hotlap.seams import loader, optimizer, step
from hotlap.seams.fitter import Fitter
from hotlap.seams.patches import PatchStack
from hotlap.search.guard_runs import EPOCH_STEPS, GUARD_STEPS, SEEDS
from hotlap.stats.compare import equivalence

OFF = (0.0, 0.5, 1.0, 1.4, 2.0, 3.0)  # times the deviation from seed to seed
WORDS = ("same", "different", "not decided")
BATCH, ITEMS, KINDS, LONGEST = 8, 1200, 8, 48


# -- simulated ---------------------------------------------------------------------------------------------------


def answer(draws: random.Random, off: float) -> str:
    base, plan = ([draws.gauss(mean, 1.0) for _ in range(SEEDS[-1])] for mean in (0.0, off))
    for seeds in SEEDS:
        differences = [other - one for one, other in zip(base[:seeds], plan, strict=False)]
        found = equivalence(differences, chance(base[:seeds]))
        if found.same or found.different:
            return "same" if found.same else "different"
    return "not decided"


def simulated(plans: int) -> None:
    draws = random.Random(0)
    print("off by   same  different  not decided")
    for off in OFF:
        said = Counter(answer(draws, off) for _ in range(plans))
        shares = [said[word] / plans for word in WORDS]
        print(f"{off:6.1f}  {shares[0]:5.1%}  {shares[1]:9.1%}  {shares[2]:11.1%}", flush=True)


# -- real jobs ---------------------------------------------------------------------------------------------------


class Clips(Dataset[tuple[torch.Tensor, int]]):
    """Sequences whose tokens name their class. `easier`: the longer one is, the more of it is noise."""

    def __init__(self, *, easier: bool) -> None:
        draws = random.Random(7)
        self.lengths = [min(LONGEST, 2 + int(draws.expovariate(1 / 10))) for _ in range(ITEMS)]
        self.labels = [draws.randrange(KINDS) for _ in range(ITEMS)]
        self.items = []
        for length, label in zip(self.lengths, self.labels, strict=True):
            noise = min(0.9, length / 24) if easier else 0.5
            tokens = [draws.randrange(KINDS) if draws.random() < noise else label for _ in range(length)]
            self.items.append(torch.tensor(tokens) + 1)

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.items[index], self.labels[index]


class Pooled(nn.Module):
    """The mean of what each token says, through a layer with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(KINDS + 1, 24, padding_idx=0)
        self.out = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, KINDS))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        there = (tokens > 0).unsqueeze(-1)
        pooled = (self.tokens(tokens) * there).sum(1) / there.sum(1)
        found: torch.Tensor = self.out(pooled)
        return found


def padded(items: Sequence[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = nn.utils.rnn.pad_sequence([each for each, _ in items], batch_first=True)
    return tokens, torch.tensor([label for _, label in items])


def train(job: str, planted: str) -> None:
    """The user's script: a plain loop."""
    dataset, model = Clips(easier=job == "easy when short"), Pooled()
    rates = {"half the rate": 0.5, "twice the rate": 2.0}
    rate = rates.get(planted, 1.0)
    stepper: Any = torch.optim.Adam(model.parameters(), lr=0.01 * rate)
    if job == "sgd":
        stepper = torch.optim.SGD(model.parameters(), lr=0.2 * rate, momentum=0.9)
    if planted == "another order":
        torch.rand(1)  # what is drawn from now on is another
    order: Any = None
    made = 0
    while True:
        if planted == "repeated samples":
            order = [index for index in torch.randperm(ITEMS).tolist() for _ in range(2)]
        train_loader = DataLoader(dataset, BATCH, shuffle=order is None, sampler=order, collate_fn=padded)
        for tokens, labels in train_loader:
            loss = nn.functional.cross_entropy(model(tokens), labels)
            stepper.zero_grad()
            loss.backward()
            made += 1
            if planted == "dropped updates" and made % 2:
                for each in model.parameters():
                    each.grad = torch.zeros_like(each)
            stepper.step()


@dataclass(frozen=True)
class Way:
    """Settings of hotlap, or something wrong in the script in their place."""

    name: str
    settings: dict[str, Any]
    planted: str = ""
    kind: str = "right"


JOBS = ("easy when short", "all alike", "sgd")
WAYS = (
    Way("another order", {}, "another order"),
    Way("bucketing=rows", {"bucketing": "rows"}),
    # A mean over the batch counts a sample among few for more than one among many: here that is another training.
    Way("bucketing=tokens", {"bucketing": "tokens"}, kind="open"),
    *(
        Way(name, {}, name, kind="wrong")
        for name in ("dropped updates", "repeated samples", "half the rate", "twice the rate")
    ),
)
NUMBER = 10_000  # of the seeds of one answer, after those of another


def run(folder: Path, job: str, seed: int, way: Way | None, samples: int) -> Witness:
    """One run of the guard, in a fork of this process."""
    child = os.fork()
    if not child:
        try:
            _bear_witness(folder, job, seed, way, samples)
        except SystemExit:
            os._exit(0)
        except BaseException as fault:
            print(f"{type(fault).__name__}: {fault}", file=sys.stderr, flush=True)
        os._exit(1)
    os.waitpid(child, 0)
    (written,) = folder.glob(f"{child}.witness.json")
    return codec.read_json(written, Witness)


def _bear_witness(folder: Path, job: str, seed: int, way: Way | None, samples: int) -> None:
    settings = way.settings if way is not None else {}
    fitter = Fitter(settings, some_knobs(settings))
    for seam in (loader, optimizer, step):
        seam.install(fitter)
    reference = Reference(folder / f"{job}.{seed}", puts=way is None)
    wanted = witness.Wanted(GUARD_STEPS, seed, samples, EPOCH_STEPS)
    witness.install(folder, wanted, PatchStack().wrap, reference)
    train(job, way.planted if way is not None else "")


Judge = Callable[[Sequence[Witness], Sequence[Witness]], Guarded]


def asked(base: Sequence[Witness], plan: Callable[[int], Sequence[Witness]], judge: Judge) -> Sameness:
    """As a search asks: with more seeds until they decide."""
    for seeds in SEEDS:
        found = judge(base[:seeds], plan(seeds))
        if found.sameness is not Sameness.NOT_DECIDED:
            break
    return found.sameness


def by_batches(base: Sequence[Witness], plan: Sequence[Witness]) -> Guarded:
    """As if there were no reference batches."""
    without = [[replace(each, answers=()) for each in runs] for runs in (base, plan)]
    return close(without[0], without[1], "statistical")


def by_reference(base: Sequence[Witness], plan: Sequence[Witness]) -> Guarded:
    return close(base, plan, "statistical")


def real(answers: int) -> None:
    print(f"\n{'job':16} {'setting':17} {'':6} {'on reference batches':>26}   {'on batches of training':>26}")
    print(
        f"{'':41} {'same':>6} {'different':>9} {'neither':>8}     {'same':>6} {'different':>9} {'neither':>8}"
    )
    for job in JOBS:
        said: dict[str, Counter[tuple[str, Sameness]]] = {way.name: Counter() for way in WAYS}
        for number in range(answers):
            with tempfile.TemporaryDirectory() as folder:
                _one_answer(Path(folder), job, number, said)
        for way in WAYS:
            shares = [
                f"{said[way.name][by, word] / answers:>{width}.0%}"
                for by in ("reference", "batches")
                for word, width in zip(_SAID, (6, 9, 8), strict=True)
            ]
            told = f"{' '.join(shares[:3])}     {' '.join(shares[3:])}"
            print(f"{job:16} {way.name:17} {way.kind:6} {told}", flush=True)


_SAID = (Sameness.SAME, Sameness.DIFFERENT, Sameness.NOT_DECIDED)


def _one_answer(folder: Path, job: str, number: int, said: dict[str, Counter[tuple[str, Sameness]]]) -> None:
    first = 1 + number * NUMBER
    seeds = range(first, first + SEEDS[-1])
    base = [run(folder, job, seed, None, 0) for seed in seeds]
    for way in WAYS:
        made: list[Witness] = []

        def plan(count: int, way: Way = way, made: list[Witness] = made) -> list[Witness]:
            for each in base[len(made) : count]:
                made.append(run(folder, job, each.seed, way, each.samples[-1]))
            return made[:count]

        said[way.name]["reference", asked(base, plan, by_reference)] += 1
        said[way.name]["batches", asked(base, plan, by_batches)] += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--plans", type=int, default=3000, help="simulated ones for each row")
    parser.add_argument("--answers", type=int, default=4, help="of real runs for each row")
    options = parser.parse_args()
    simulated(options.plans)
    real(options.answers)


if __name__ == "__main__":
    main()
