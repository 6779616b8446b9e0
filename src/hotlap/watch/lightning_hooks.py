"""Makes a monitor a callback of Lightning where Lightning is used, and a plain object where it is not.

Which of Lightning's two names a script imports is known when it builds the monitor, not when this file is imported.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from hotlap.watch.latent import Decode, evaluating
from hotlap.watch.records import Records
from hotlap.watch.sources import Found, posterior_at, posterior_in

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


def _in_eval_mode(found: Found, module: Any) -> Decode | None:
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
