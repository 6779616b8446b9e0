"""Finds the posterior in what a script has: the result of a training step, or an attribute of a module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

from hotlap.watch.latent import Decode

_MEANS = ("mu", "mean", "z_mean", "mus", "loc", "means")
_LOGVARS = ("logvar", "log_var", "z_logvar", "z_log_var", "logvars", "log_variance")
_SCALES = ("scale", "std", "stddev", "sigma")


class Found(NamedTuple):
    """`decode` maps latents to the reconstruction loss of the batch they came from."""

    mu: Tensor
    logvar: Tensor
    decode: Decode | None = None


def posterior_in(value: Any) -> Found | None:
    """The posterior in a pair (mu, logvar), a mapping, a distribution or any object with such attributes."""
    if isinstance(value, Found):
        return value
    if isinstance(value, tuple | list):
        is_pair = len(value) in (2, 3) and all(isinstance(each, Tensor) for each in value[:2])
        return Found(*value) if is_pair else None
    mean, logvar = _named(value, _MEANS), _named(value, _LOGVARS)
    if logvar is None and (scale := _named(value, _SCALES)) is not None:
        logvar = 2.0 * scale.detach().log()
    if mean is None or logvar is None:
        return None
    decode = _get(value, "decode") if isinstance(value, Mapping) else None
    return Found(mean, logvar, decode if callable(decode) else None)


def posterior_at(module: Any, path: str) -> Found | None:
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
