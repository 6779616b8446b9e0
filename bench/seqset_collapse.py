"""Posterior collapse of the recipe seqset_vae: is it found, is a healthy model left in peace, what does KL alone say?

usage: python bench/seqset_collapse.py [--runs 20] [--scenario healthy|provoked|ramp|flat]
Each run trains the tiny network on subjects whose factors are known, with other weights, order, learning rate, beta and
warm-up for each seed. What became of it is told by the factors: how much of their variance a linear map finds in
*drawn* latents of subjects that were not trained on. (Means would not do: a collapsed posterior keeps traces in them
that are far below its own noise.) The detectors beside it wait for a KL that falls to a low level: by a share of
itself, or by so many nats that a curve shows it.
    healthy   beta 0.25 to 2
    provoked  beta 40
    ramp      beta 1, then growing slowly to 40
    flat      a decoder that was never connected to the latent: KL is near zero from the first step
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import torch

from hotlap.watch import PosteriorMonitor
from hotlap_recipes.seqset_vae.data import Batch, Collate
from hotlap_recipes.seqset_vae.make_data import write_subjects
from hotlap_recipes.seqset_vae.model import SIZES, SeqSetVAE
from hotlap_recipes.seqset_vae.module import inputs_of
from hotlap_recipes.seqset_vae.naive_monitor import EVERY, falls
from hotlap_recipes.seqset_vae.subjects import ParquetSubjects
from interleave import host_line

STEPS, BATCH = 500, 16
SUBJECTS, WIDTH, LENGTHS = (384, 1, 128), 32, (8, 12)
LOST, KEPT = 0.1, 0.3  # share of the factors' variance: a model in between would be neither
SCENARIOS = ("healthy", "provoked", "ramp", "flat")
WARMUPS = (0, 50, 150)  # steps
VISIBLE = 0.01  # nats at a look: a fall that a curve of KL shows


@dataclass(frozen=True)
class Split:
    batches: list[Batch]
    factors: torch.Tensor


@dataclass(frozen=True)
class Run:
    """Steps at which each detector first raised an alarm, None for never; and what became of the model."""

    watch: int | None
    trend: int | None
    visible: int | None
    recovered: float
    kl: float
    active: int


class Schedule:
    """The weight of KL at each step, drawn for a run."""

    def __init__(self, scenario: str, draw: random.Random) -> None:
        self.ramps = scenario == "ramp"
        self.warmup = draw.choice(WARMUPS)
        self.beta = {"healthy": 2.0 ** draw.uniform(-2, 1), "provoked": 40.0}.get(scenario, 1.0)

    def at(self, step: int) -> float:
        beta = self.beta * min(1.0, (step + 1) / max(1, self.warmup))
        grown = max(0.0, min(1.0, (step / STEPS - 0.25) / 0.4))
        return beta * 40.0**grown if self.ramps else beta


def subjects(folder: Path, split: str) -> Split:
    data = ParquetSubjects(str(folder), split)
    items = [data[index] for index in range(len(data))]
    collate = Collate(LENGTHS[1], dynamic=False)
    names = [name for name in data.table.columns if name.startswith("factor_")]
    factors = torch.tensor(data.table[names].to_numpy(), dtype=torch.float32)
    return Split([collate(items[at : at + BATCH]) for at in range(0, len(items), BATCH)], factors)


def network(scenario: str, seed: int) -> SeqSetVAE:
    torch.manual_seed(seed)
    model = SeqSetVAE(WIDTH, SIZES["tiny"])
    if scenario == "flat":
        for part in (model.decoder.latent, model.decoder.modulate):
            torch.nn.init.zeros_(part.weight).requires_grad_(False)
        torch.nn.init.zeros_(model.encoder.posterior.weight)
    return model


def batches(split: Split, draw: random.Random) -> Iterator[Batch]:
    while True:
        yield from draw.sample(split.batches, len(split.batches))


def run(scenario: str, seed: int, train: Split, test: Split) -> Run:
    draw = random.Random(seed)
    model, schedule = network(scenario, seed), Schedule(scenario, draw)
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=10.0 ** draw.uniform(-3, -2.5), fused=True)
    monitor = PosteriorMonitor(update_frequency=EVERY)
    watch = trend = visible = None
    divergences: list[float] = []
    for step, batch in zip(range(STEPS), batches(train, draw), strict=False):
        inputs = inputs_of(batch)
        posterior, reconstruction = model(**inputs)
        divergence = posterior.divergence().sum()
        optimizer.zero_grad()
        (reconstruction.mean() + schedule.at(step) * divergence).backward()
        optimizer.step()
        verdict = monitor.update(
            posterior.mu, posterior.logvar, decode=lambda z, i=inputs: model.reconstruction(z, **i)
        )
        if watch is None and str(verdict.state) != "healthy":
            watch = step
        if step % EVERY == 0:
            divergences.append(divergence.item())
            trend = step if trend is None and falls(divergences) else trend
            visible = step if visible is None and falls(divergences, least=VISIBLE) else visible
    active = int((posterior.mu.var(0) > 0.01).sum())
    return Run(watch, trend, visible, recovered(model, train, test), divergence.item(), active)


@torch.no_grad()
def recovered(model: SeqSetVAE, train: Split, test: Split) -> float:
    """Share of the factors' variance that a linear map of drawn latents explains, for unseen subjects."""
    known, unseen = (_drawn(model, split) for split in (train, test))
    slope = torch.linalg.lstsq(known, train.factors).solution
    left = (unseen @ slope - test.factors).square().mean(0)
    return float((1.0 - left / test.factors.var(0)).mean())


def _drawn(model: SeqSetVAE, split: Split) -> torch.Tensor:
    latents = torch.cat([model.encoder(**inputs_of(batch)).draw() for batch in split.batches])
    return torch.cat([latents, torch.ones(len(latents), 1)], 1)


def told(scenario: str, runs: Sequence[Run]) -> str:
    watched = [each.watch for each in runs if each.watch is not None]
    trended = sum(each.trend is not None for each in runs)
    visible = sum(each.visible is not None for each in runs)
    when = f"{median(watched):.0f}" if watched else "-"
    shares = [each.recovered for each in runs]
    return (
        f"{scenario:9} {len(watched):6}/{len(runs)} {when:>12} {trended:7}/{len(runs)} {visible:7}/{len(runs)}   "
        f"{mean(shares):+.2f} ({min(shares):+.2f} to {max(shares):+.2f})   "
        f"{median(each.kl for each in runs):7.3f} {median(each.active for each in runs):10.1f}"
    )


def faults(scenario: str, runs: Sequence[Run]) -> list[str]:
    """What is not as it should be: of the scenario itself, and of the monitor."""
    collapses = scenario != "healthy"
    other = [r for r in runs if not (r.recovered < LOST if collapses else r.recovered > KEPT)]
    wrong = [r for r in runs if (r.watch is None) == collapses]
    found = [f"{scenario}: {len(other)} runs did not become what they were meant to be"] if other else []
    return found + ([f"{scenario}: wrong in {len(wrong)} of {len(runs)} runs"] if wrong else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--scenario", choices=SCENARIOS, action="append")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(host_line())
    print(f"{options.runs} runs of {STEPS} steps each, a look every {EVERY} steps within 1 % of the time\n")
    print(
        "          hotlap.watch  median step  KL trend   KL trend   factors in                          active"
    )
    print(
        "scenario        alarms     of alarm  by share    in nats   drawn latents              KL        units"
    )
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = write_subjects(Path(name), SUBJECTS, WIDTH, LENGTHS)
        train, test = subjects(folder, "train"), subjects(folder, "test")
        for scenario in options.scenario or SCENARIOS:
            runs = [run(scenario, seed, train, test) for seed in range(options.runs)]
            print(told(scenario, runs), flush=True)
            wrong += faults(scenario, runs)
    print("\ntarget: every collapse found, no false alarm:", "; ".join(wrong) or "reached")


if __name__ == "__main__":
    main()
