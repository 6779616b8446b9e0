"""Notes the lines on which the script built its optimizers and turned on switches for debugging."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import anomaly_mode
from torch.optim import Optimizer

from hotlap.probe import boundary
from hotlap.probe.portrait import optimizer_origins, place_of_caller
from hotlap.probe.session import Session

Note = Callable[[tuple[Any, ...], list[Any]], None]


def install(session: Session) -> None:
    places: dict[str, Any] = {}
    session.facts["switch_places"] = places
    noting = {
        name: functools.partial(_around, functools.partial(_note_switch, places, name))
        for name in ("detect_anomaly", "deterministic")
    }
    for switch in (anomaly_mode.detect_anomaly, anomaly_mode.set_detect_anomaly):
        session.wrap(switch, "__init__", noting["detect_anomaly"])
    session.wrap(torch, "use_deterministic_algorithms", noting["deterministic"])
    session.wrap(Optimizer, "__init__", functools.partial(_around, _note_optimizer), while_compiling=False)


def _around(note: Note, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def called(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        place = boundary.attempt(place_of_caller, sys._getframe(1))
        if place:
            boundary.attempt(note, args, place)
        return result

    return called


def _note_switch(places: dict[str, Any], name: str, _: tuple[Any, ...], place: list[Any]) -> None:
    places[name] = place


def _note_optimizer(args: tuple[Any, ...], place: list[Any]) -> None:
    optimizer_origins[args[0]] = place
