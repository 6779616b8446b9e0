"""Watches the latent of a variational autoencoder while it trains, within a budget of time and a fixed memory.

>>> import torch
>>> from hotlap.watch import PosteriorMonitor
>>> monitor = PosteriorMonitor(update_frequency=2, budget="50%")
>>> for step in range(6):
...     mu, logvar = 2 * torch.randn(256, 16), torch.full((256, 16), -4.0)
...     verdict = monitor.update(mu, logvar)  # costs nothing but a counter on most steps
>>> str(monitor.verdict.state)
'healthy'
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from hotlap.probe import boundary
from hotlap.watch import latent
from hotlap.watch.budget import Budget
from hotlap.watch.collapse import Detector, Posterior, State, Verdict
from hotlap.watch.latent import Decode
from hotlap.watch.lightning_hooks import LightningHooks
from hotlap.watch.reading import Reading
from hotlap.watch.records import Records

ROWS = 256
"""Posteriors of one look. Mutual information shows up to ln(256) = 5.5 nats; small batches are collected until there
are so many."""
_SEED = 20
_FAILED = object()
_LOOK_S, _GAP_S, _PLOT_S = 0.02, 0.05, 1.5  # assumed until they have been measured


class PosteriorMonitor(LightningHooks):
    """Tells whether a posterior is healthy, collapsing or collapsed, which dimensions hold nothing, and since when.

    In a loop of one's own::

        monitor = PosteriorMonitor(folder="runs/1")
        for step, batch in enumerate(loader):
            mu, logvar = encoder(batch)
            ...
            monitor.update(mu, logvar, decode=lambda z: reconstruction_loss(decoder(z), batch))
        monitor.close()

    In Lightning, `Trainer(callbacks=[PosteriorMonitor()])`. The posterior is taken from what `training_step` returns
    (`{"loss": ..., "mu": ..., "logvar": ...}`, optionally `"decode"`), or with `source="posterior"` from that
    attribute of the module: a pair, a mapping, or an object with `mu` and `logvar`, such as a
    `torch.distributions.Normal`.

    `decode(z)` returns the reconstruction loss of the same batch from other latents, as a mean or for each row. It is
    called twice a look, without gradients, in eval mode in Lightning, and without touching random number generators.

    Results are in `verdict`, `latest` and `history`. They also go to `posterior.jsonl` and `posterior.png` in `folder`
    (by default the run folder under `hotlap run`, the Trainer's `log_dir` in Lightning, nowhere otherwise), to the
    Trainer's loggers or a SummaryWriter given as `writer`, and to `hotlap watch`. A change of the verdict is printed.

    `update_frequency` and `plot_frequency` count calls and are the most that is done: `budget` thins them so that all
    of it stays below that share of the training time. `budget="off"` watches nothing; a `Budget` may be shared by
    monitors. `window_size` is how many looks the verdict rests on.
    """

    def __init__(
        self,
        update_frequency: int = 100,
        plot_frequency: int = 1000,
        window_size: int = 50,
        verbose: bool = False,
        budget: Budget | str | float = "1%",
        *,
        source: str | None = None,
        folder: Path | str | None = None,
        writer: Any = None,
    ) -> None:
        self.budget = budget if isinstance(budget, Budget) else Budget(budget)
        self.latest: Posterior | None = None
        self._every = max(1, update_frequency)
        self._plot_every = max(1, plot_frequency)
        self._verbose = verbose
        self._source = source
        self._detector = Detector(max(1, window_size))
        self._records = Records(folder, writer)
        self._calls = self._plotted = 0
        self._wake = self._every if self.budget.share > 0 else sys.maxsize
        self._rows: list[tuple[Tensor, Tensor]] = []
        self._collecting_since = 0
        self._failed = False
        self._pending: tuple[int, int, Reading, bool] | None = None
        self._generators: dict[torch.device, torch.Generator] = {}

    @property
    def verdict(self) -> Verdict:
        """What is known by now."""
        return self._detector.verdict

    @property
    def history(self) -> list[Posterior]:
        """Looks over the whole run, thinned so that they never become many."""
        return self._records.history

    def update(
        self, mu: Tensor, logvar: Tensor, *, decode: Decode | None = None, step: int | None = None
    ) -> Verdict:
        """Call it once a training step with the posterior of the batch; rows first, dimensions last."""
        self._calls += 1
        if self._is_due():
            at = self._calls if step is None else step
            if self._attempt(self._watch, mu, logvar, decode, at) is _FAILED:
                self._rows.clear()
                self._wake = self._calls + self._every
        return self.verdict

    def close(self) -> None:
        """Training has ended: the last look is read and plotted, outside of any step."""
        if self._pending is not None:
            self._read(self._pending)
        if self._records.history:
            self._records.plot(self.verdict)
        self._records.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _is_due(self) -> bool:
        return self._calls >= self._wake or self._pending is not None

    def _watch(self, mu: Tensor, logvar: Tensor, decode: Decode | None, step: int) -> None:
        if self._pending is not None and self._pending[2].ready:
            with self.budget.spending("tell"):
                self._read(self._pending)
        if self._calls < self._wake or self._pending is not None:
            return
        if not self._rows and not self.budget.allows("look", _LOOK_S):
            return
        if not self._rows:
            self._collecting_since = self._calls
        with self.budget.spending("collect"):
            enough = self._collect(mu, logvar)
        if enough:
            self._look(mu, decode, step)

    def _collect(self, mu: Tensor, logvar: Tensor) -> bool:
        have = sum(len(each) for each, _ in self._rows)
        means, logvars = (latent.as_rows(each)[: ROWS - have] for each in (mu, logvar))
        self._rows.append((means.clone(), logvars.clone()))  # the script may change its own in place
        return have + len(means) >= ROWS

    def _look(self, mu: Tensor, decode: Decode | None, step: int) -> None:
        with self.budget.spending("look"):
            means, logvars = (torch.cat(part) for part in zip(*self._rows, strict=True))
            generator = self._generator(means.device)
            noise = torch.randn(means.shape, generator=generator, device=means.device)
            seen = latent.figures(means, logvars, noise)
            self._rows.clear()
        gap = None
        if decode is not None and self.budget.allows("gap", _GAP_S):
            with self.budget.spending("gap"):
                gap = self._attempt(latent.shuffled_gap, decode, mu.detach(), generator)
            gap = None if gap is _FAILED else gap
        everything = seen if gap is None else torch.cat([seen, gap.to(seen.device)])
        self._pending = (step, len(means), Reading(everything), gap is not None)
        self._wake = max(self._calls + 1, self._collecting_since + self._every)
        if self._pending[2].ready:
            with self.budget.spending("tell"):
                self._read(self._pending)

    def _generator(self, device: torch.device) -> torch.Generator:
        """One of our own: the script's random numbers stay as they would be without us."""
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(_SEED)
        return self._generators[device]

    def _read(self, pending: tuple[int, int, Reading, bool]) -> None:
        self._pending = None
        step, rows, reading, has_gap = pending
        values = reading.values()
        gap = values[-1] / max(abs(values[-2]), 1e-12) if has_gap else None
        width = (len(values) - (3 if has_gap else 1)) // 2
        kl, variances = tuple(values[:width]), tuple(values[width : 2 * width])
        self.latest = Posterior(step, rows, kl, variances, values[2 * width], gap)
        before = self.verdict.state
        verdict = self._detector.add(self.latest)
        self._records.add(self.latest, verdict, self.budget)
        if self._verbose or verdict.state is not before:
            self._say(verdict)
        if self._calls - self._plotted >= self._plot_every and self.budget.allows("plot", _PLOT_S):
            self._plotted = self._calls
            with self.budget.spending("plot"):
                self._records.plot(verdict)

    def _attempt(self, work: Callable[..., Any], *args: Any) -> Any:
        """A fault of the monitor, or of the decoder that it was given, does not end a training; it is told once."""
        known = len(boundary.faults)
        result = boundary.attempt(lambda: (work(*args),))
        if result is not None:
            return result[0]
        if not self._failed and len(boundary.faults) > known:
            self._failed = True
            print(f"hotlap: the posterior is not fully watched: {boundary.faults[-1]}", file=sys.stderr)
        return _FAILED

    def _say(self, verdict: Verdict) -> None:
        since = f" since step {verdict.since}" if verdict.state is not State.HEALTHY else ""
        print(f"hotlap: posterior {verdict.state}{since}: {verdict.reason}", file=sys.stderr, flush=True)
