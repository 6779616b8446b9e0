"""What monitors cost: blocks of the same training with and without them take turns, with an A/A control.

usage: python bench/watch.py [--rounds 16] [--steps 150] [--budget 1%]
Beside them, a monitor as it is often written: every 20 steps, mutual information pair by pair, a plot by pyplot.
The budget's clock runs only in the blocks of its own monitor, as it would in a training of its own.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import Tensor

from hotlap.stats.compare import Ratio, ratio
from hotlap.watch import Budget, PosteriorMonitor, TrainingMonitor
from interleave import host_line
from vae import Vae, rows

BASE, CONTROL = "no monitor", "no monitor again (A/A)"
NAIVE_EVERY = 20
TARGET = 0.01
BATCH, INPUTS, WIDTH, LATENT = 64, 256, 256, 256

Look = Callable[[Tensor, Tensor, Callable[[Tensor], Tensor]], object]


class Clock:
    """Seconds of the blocks that it was let run in."""

    def __init__(self) -> None:
        self._total, self._since = 0.0, None

    def __call__(self) -> float:
        running = 0.0 if self._since is None else time.perf_counter() - self._since
        return self._total + running

    def run(self) -> None:
        self._since = time.perf_counter()

    def stop(self) -> None:
        self._total, self._since = self(), None


class Loop:
    """A variational autoencoder with a latent of 256, one step at a time."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self._data = rows(4096, INPUTS)
        self._model = Vae(WIDTH, LATENT, INPUTS)
        self.optimizer = torch.optim.Adam(self._model.parameters(), 1e-3)

    def step(self, look: Look | None) -> None:
        x = self._data[torch.randint(len(self._data), (BATCH,))]
        mu, logvar = self._model.encode(x)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        divergence = 0.5 * (mu.square() + logvar.exp() - 1.0 - logvar).sum(-1)
        loss = (self._model.loss_of(z, x) + divergence).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if look is not None:
            look(mu.detach(), logvar.detach(), lambda latents: self._model.loss_of(latents, x))


class Naive:
    """As it is often written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._calls = 0
        self._history: list[list[float]] = []

    def __call__(self, mu: Tensor, logvar: Tensor, _: Callable[[Tensor], Tensor]) -> None:
        self._calls += 1
        if self._calls % NAIVE_EVERY:
            return
        divergence = 0.5 * (mu.square() + logvar.exp() - 1.0 - logvar).mean(0)
        spread = (0.5 * logvar).exp()
        z = mu + spread * torch.randn_like(mu)
        pairs = torch.distributions.Normal(mu[None], spread[None]).log_prob(z[:, None]).sum(-1)
        own = pairs.diagonal()
        information = (own - pairs.logsumexp(1) + torch.tensor(float(len(mu))).log()).mean().item()
        self._history.append([information, divergence.sum().item(), (mu.var(0) > 0.01).sum().item()])
        self._plot(divergence)

    def _plot(self, divergence: Tensor) -> None:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(2, 2, figsize=(10, 6))
        for axis, series in zip(axes.flat, zip(*self._history, strict=True), strict=False):
            axis.plot(series)
        axes.flat[3].bar(range(len(divergence)), divergence.numpy())
        figure.savefig(self._folder / "naive.png")
        pyplot.close(figure)


class Contender:
    """A monitor with the time of its blocks."""

    def __init__(self, name: str, look: Look | None, budget: Budget | None = None) -> None:
        self.name, self.look, self.budget = name, look, budget
        self.beside: Callable[[], AbstractContextManager[object]] = nullcontext
        self.clock: Clock | None = None
        self.walls: list[float] = []
        self.cpus: list[float] = []


def contenders(budget: str, folder: Path) -> list[Contender]:
    naive = Contender(f"naive, every {NAIVE_EVERY} steps, plots", Naive(folder))
    found = [Contender(BASE, None)]
    for name in ("PosteriorMonitor", "TrainingMonitor", "both, one budget"):
        clock = Clock()
        shared = Budget(budget, clock)
        posterior = PosteriorMonitor(budget=shared, folder=folder / name.split()[0].strip(","))
        training = TrainingMonitor(shared, clock)
        alone = name == "TrainingMonitor"
        contender = Contender(name, None if alone else _looking(posterior), shared)
        contender.clock = clock
        if name != "PosteriorMonitor":
            contender.beside = lambda training=training: training
        found.append(contender)
    return [*found, Contender(CONTROL, None), naive]


def _looking(posterior: PosteriorMonitor) -> Look:
    return lambda mu, logvar, decode: posterior.update(mu, logvar, decode=decode)


def block(loop: Loop, contender: Contender, steps: int) -> None:
    for _ in range(5):
        loop.step(None)
    if contender.clock is not None:
        contender.clock.run()
    with contender.beside():
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            loop.step(contender.look)
        contender.walls.append((time.perf_counter() - began) / steps * 1e3)
        contender.cpus.append((time.process_time() - cpu) / steps * 1e3)
    if contender.clock is not None:
        contender.clock.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--budget", default="1%")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the other core is the system's: a step of few threads scatters less
    print(host_line())
    loop = Loop()
    with tempfile.TemporaryDirectory() as folder:
        every = contenders(options.budget, Path(folder))
        for turn in range(options.rounds):
            for contender in every if turn % 2 == 0 else reversed(every):
                block(loop, contender, options.steps)
    report(every, options.rounds, options.steps, options.budget)


def report(every: list[Contender], rounds: int, steps: int, budget: str) -> None:
    base = every[0]
    print(
        f"{rounds} blocks of {steps} steps each, median step {statistics.median(base.walls):.2f} ms, budget {budget}"
    )
    print(f"latent {LATENT}, batch {BATCH}, one thread: CPU time leaves out what others took of the core\n")
    print(
        f"{'monitor':30} {'CPU a step':>12} {'CPU ratio (95 %)':>26} {'wall ratio (95 %)':>26} {'its own count':>14}"
    )
    for each in every[1:]:
        extra = statistics.mean(each.cpus) - statistics.mean(base.cpus)
        own = "" if each.budget is None else f"{(each.budget.spent_share or 0.0):.2%}"
        ratios = " ".join(_shown(ratio(*pair)) for pair in ((base.cpus, each.cpus), (base.walls, each.walls)))
        print(f"{each.name:30} {extra * 1e3:+9.0f} us {ratios} {own:>14}")
    counted = [each for each in every if each.budget is not None]
    within = all(ratio(base.cpus, each.cpus).low <= 1 + TARGET for each in counted)
    held = all((each.budget.spent_share or 0.0) <= TARGET for each in counted if each.budget is not None)
    print(
        f"\ntarget: at most 1 % of a step, by their own count and not surely more: "
        f"{'reached' if within and held else 'MISSED'}"
    )


def _shown(found: Ratio) -> str:
    return f"{found.value:9.4f} ({found.low:.4f} to {found.high:.4f})"


if __name__ == "__main__":
    main()
