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

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from hotlap.probe import boundary
from hotlap.probe.accelerator import of_kind
from hotlap.watch.budget import Budget
from hotlap.watch.collapse import Detector, Posterior, State, Verdict
from hotlap.watch.records import Records
from hotlap.watch.training import HostCopy

# What a batch of posteriors says, on their own device: divergence, active units, mutual information, use of z.
#
# A posterior is a normal distribution with a diagonal covariance, given by `mu` and `logvar` of shape (rows,
# dimensions). Nothing here draws from the script's random number generators, and nothing waits for a device.


Decode = Callable[[Tensor], Tensor]


def as_rows(tensor: Tensor) -> Tensor:
    """(rows, dimensions) in 32 bits, whatever stands before the last dimension."""
    return tensor.detach().reshape(-1, tensor.shape[-1]).float()


@torch.no_grad()
def figures(mu: Tensor, logvar: Tensor, noise: Tensor) -> Tensor:
    """One flat tensor, so that a device is asked once: KL per dimension, variance of means, mutual information."""
    divergence = 0.5 * (mu.square() + logvar.exp() - 1.0 - logvar).mean(0)
    return torch.cat([divergence, mu.var(0), mutual_information(mu, logvar, noise).reshape(1)])


@torch.no_grad()
def mutual_information(mu: Tensor, logvar: Tensor, noise: Tensor) -> Tensor:
    """Nats that z holds about which row it came from, at most ln(rows): E[log q(z|x) - log mean_j q(z|x_j)].

    The squared distances of all pairs are two matrix products. They lose digits where posteriors are narrow; there
    all pairs but a row with itself are far apart and count for nothing, and a row with itself is computed directly.
    """
    rows = mu.shape[0]
    centred = mu - mu.mean(0)
    z = centred + (0.5 * logvar).exp() * noise
    precision = (-logvar).exp()
    pairs = z.square() @ precision.T - 2.0 * (z @ (centred * precision).T)
    pairs = -0.5 * (pairs + (centred.square() * precision + logvar).sum(1))
    own = -0.5 * (noise.square() + logvar).sum(1)
    pairs.diagonal().copy_(own)
    return (own - torch.logsumexp(pairs, 1) + math.log(rows)).mean().clamp(0.0, math.log(rows))


@torch.no_grad()
def shuffled_gap(decode: Decode, mu: Tensor, generator: torch.Generator) -> Tensor | None:
    """(reconstruction loss, how much it grows when each row gets the z of another); None where rows are too few.

    Every row gets another row's z, so that even four rows show whether the decoder looks at it.
    """
    count = mu.shape[0]
    if count < 2:
        return None
    order = torch.randperm(count, generator=generator, device=generator.device).to(mu.device)
    source = torch.empty_like(order)
    source[order] = order.roll(1)
    with unseen_by_generators(mu.device):
        own = decode(mu).detach().float().mean()
        other = decode(mu[source]).detach().float().mean()
    return torch.stack([own, other - own])


@contextlib.contextmanager
def unseen_by_generators(device: torch.device) -> Iterator[None]:
    """What is drawn inside (dropout, say) leaves the script's random numbers as they were."""
    devices: list[Any] = [] if of_kind(device.type) is None else [device]
    kind = device.type if devices else "cuda"  # which is never asked where no device is named
    with torch.random.fork_rng(devices=devices, device_type=kind):
        yield


@contextlib.contextmanager
def evaluating(module: nn.Module | None) -> Iterator[None]:
    """In eval mode, so that no batch norm learns from a look; afterwards each part is as it was."""
    training = [each for each in module.modules() if each.training] if module is not None else []
    try:
        for each in training:
            each.training = False
        yield
    finally:
        for each in training:
            each.training = True


# Makes a monitor a callback of Lightning where Lightning is used, and a plain object where it is not.
#
# Which of Lightning's two names a script imports is known when it builds the monitor, not when this file is imported.


_NAMES = ("lightning.pytorch", "pytorch_lightning")
_PATIENCE = 10  # steps without a posterior until that is told


class LightningHooks:
    """What Lightning calls. A monitor that is built beside Lightning is an instance of its Callback as well."""

    _calls: int
    _records: Records
    _source: str | None
    _missed = 0

    def __new__(cls, *_: Any, **__: Any) -> Self:
        bases = tuple(sys.modules[name].Callback for name in _NAMES if name in sys.modules)
        plain: Any = cls
        made: Self = object.__new__(_joined(plain, bases) if bases else plain)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy in another process (`ddp_spawn`) is made there, of what Lightning is there."""
        base = next(each for each in type(self).__mro__ if "_joined_with" not in vars(each))
        return _rebuilt, (base, self.__dict__)

    def update(self, mu: Tensor, logvar: Tensor, *, decode: Decode | None, step: int | None) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def _is_due(self) -> bool:
        raise NotImplementedError

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 Lightning's signature
        where = getattr(trainer, "log_dir", None) or getattr(trainer, "default_root_dir", None)
        self._records.offer(Path(where) if where else None, getattr(trainer, "loggers", ()))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any, **__: Any) -> None:
        if not trainer.is_global_zero:
            return
        self._calls += 1
        if not self._is_due():
            return
        self._calls -= 1  # `update` counts
        found = posterior_at(pl_module, self._source) if self._source else posterior_in(outputs)
        if found is None:
            self._miss()
        else:
            decode = _in_eval_mode(found, pl_module)
            self.update(found.mu, found.logvar, decode=decode, step=trainer.global_step)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        if trainer.is_global_zero:
            self.close()

    def _miss(self) -> None:
        self._calls += 1
        self._missed += 1
        if self._missed == _PATIENCE:
            where = (
                f"the module's attribute '{self._source}'" if self._source else "what training_step returns"
            )
            print(
                f"hotlap: no posterior is watched: {where} holds no mu and logvar.\n"
                '  -> return {"loss": loss, "mu": mu, "logvar": logvar}, or name an attribute: source="..."',
                file=sys.stderr,
                flush=True,
            )


def _in_eval_mode(found: LatentStatistics, module: Any) -> Decode | None:
    decode = found.decode
    if decode is None:
        return None

    def decoded(z: Tensor) -> Tensor:
        with evaluating(module):
            return decode(z)

    return decoded


@functools.cache
def _joined(cls: Any, bases: tuple[Any, ...]) -> Any:
    body = {"__module__": cls.__module__, "__doc__": cls.__doc__, "_joined_with": bases}
    return type(cls.__name__, (cls, *bases), body)


def _rebuilt(cls: Any, state: dict[str, Any]) -> Any:
    made = cls.__new__(cls)
    made.__dict__.update(state)
    return made


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
        self._pending: tuple[int, int, HostCopy, bool] | None = None
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

    def __exit__(self, *_: object) -> None:
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
        means, logvars = (as_rows(each)[: ROWS - have] for each in (mu, logvar))
        self._rows.append((means.clone(), logvars.clone()))  # the script may change its own in place
        return have + len(means) >= ROWS

    def _look(self, mu: Tensor, decode: Decode | None, step: int) -> None:
        with self.budget.spending("look"):
            means, logvars = (torch.cat(part) for part in zip(*self._rows, strict=True))
            generator = self._generator(means.device)
            noise = torch.randn(means.shape, generator=generator, device=means.device)
            seen = figures(means, logvars, noise)
            self._rows.clear()
        gap = None
        if decode is not None and self.budget.allows("gap", _GAP_S):
            with self.budget.spending("gap"):
                gap = self._attempt(shuffled_gap, decode, mu.detach(), generator)
            gap = None if gap is _FAILED else gap
        everything = seen if gap is None else torch.cat([seen, gap.to(seen.device)])
        self._pending = (step, len(means), HostCopy(everything), gap is not None)
        self._wake = max(self._calls + 1, self._collecting_since + self._every)
        if self._pending[2].ready:
            with self.budget.spending("tell"):
                self._read(self._pending)

    def _generator(self, device: torch.device) -> torch.Generator:
        """One of our own: the script's random numbers stay as they would be without us."""
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(_SEED)
        return self._generators[device]

    def _read(self, pending: tuple[int, int, HostCopy, bool]) -> None:
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


# Finds the posterior in what a script has: the result of a training step, or an attribute of a module.


_MEANS = ("mu", "mean", "z_mean", "mus", "loc", "means")
_LOGVARS = ("logvar", "log_var", "z_logvar", "z_log_var", "logvars", "log_variance")
_SCALES = ("scale", "std", "stddev", "sigma")


class LatentStatistics(NamedTuple):
    """`decode` maps latents to the reconstruction loss of the batch they came from."""

    mu: Tensor
    logvar: Tensor
    decode: Decode | None = None


def posterior_in(value: Any) -> LatentStatistics | None:
    """The posterior in a pair (mu, logvar), a mapping, a distribution or any object with such attributes."""
    if isinstance(value, LatentStatistics):
        return value
    if isinstance(value, tuple | list):
        is_pair = len(value) in (2, 3) and all(isinstance(each, Tensor) for each in value[:2])
        return LatentStatistics(*value) if is_pair else None
    mean, logvar = _named(value, _MEANS), _named(value, _LOGVARS)
    if logvar is None and (scale := _named(value, _SCALES)) is not None:
        logvar = 2.0 * scale.detach().log()
    if mean is None or logvar is None:
        return None
    decode = _get(value, "decode") if isinstance(value, Mapping) else None
    return LatentStatistics(mean, logvar, decode if callable(decode) else None)


def posterior_at(module: Any, path: str) -> LatentStatistics | None:
    """The posterior at an attribute, with dots for parts of parts; what can be called there is called."""
    value = module
    for name in path.split("."):
        value = getattr(value, name, None)
    if callable(value) and not isinstance(value, Mapping):
        value = value()
    return posterior_in(value)


def _named(value: Any, names: tuple[str, ...]) -> Tensor | None:
    found = (_get(value, name) for name in names)
    return next((each for each in found if isinstance(each, Tensor)), None)


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
