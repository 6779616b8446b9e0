"""Listens at copies to the device. Casts and no-ops are not transfers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch

from hotlap.probe import marks
from hotlap.probe.marks import Kind
from hotlap.probe.session import Session, now

_ENTER, _LEAVE = marks.enter(Kind.TRANSFER), marks.leave(Kind.TRANSFER)


def install(session: Session) -> None:
    for name in ("to", "cuda"):
        session.wrap(torch.Tensor, name, functools.partial(_around, session), while_compiling=False)


def _around(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    append, origin = session.append, session.origin

    @functools.wraps(original)
    def moved(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        started = now()
        result = original(self, *args, **kwargs)
        copied = result is not self and (result.device != self.device or _names_device(args, kwargs))
        if copied and get_ident() == session.thread:
            append((started - origin) << 8 | _ENTER)
            append((now() - origin) << 8 | _LEAVE)
        return result

    return moved


def _names_device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return bool(args and isinstance(args[0], str | torch.device)) or "device" in kwargs
