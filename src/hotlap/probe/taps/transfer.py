"""Listens at copies to the device. Casts and no-ops are not transfers.

On the device, where it is timed, a copy is a part of its own, or runs beside the others on a stream of its own. Whether
a call copies is known beforehand only as far as its arguments name another device.
"""

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
    # Also the method that a backend of its own has, such as `Tensor.npu`.
    names = {"to", "cuda", "xpu", torch._C._get_privateuse1_backend_name()}
    for name in sorted(names):
        if hasattr(torch.Tensor, name):
            around = functools.partial(_around, session, name)
            session.wrap(torch.Tensor, name, around, while_compiling=False)


def _around(session: Session, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    append, origin = session.append, session.origin

    @functools.wraps(original)
    def moved(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        clock, begun = session.device, None
        if clock is not None and get_ident() == session.thread and _leaves(self, name, args, kwargs):
            begun = clock.copy_begins()
        started = now()
        result = original(self, *args, **kwargs)
        copied = result is not self and (result.device != self.device or _names_device(args, kwargs))
        if copied and get_ident() == session.thread:
            append((started - origin) << 8 | _ENTER)
            append((now() - origin) << 8 | _LEAVE)
        if begun is not None:
            clock.copy_ends(begun)
        return result

    return moved


def _leaves(tensor: torch.Tensor, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a tensor of the host goes to a device."""
    if tensor.device.type != "cpu":
        return False
    if name != "to":
        return True
    where = args[0] if args else kwargs.get("device", kwargs.get("other"))
    if isinstance(where, torch.Tensor):
        where = where.device
    if isinstance(where, torch.device):
        return where.type != "cpu"
    return isinstance(where, int) or (isinstance(where, str) and not where.startswith("cpu"))


def _names_device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return bool(args and isinstance(args[0], str | torch.device)) or "device" in kwargs
