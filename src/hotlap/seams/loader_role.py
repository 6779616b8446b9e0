"""What a loader is for, judged when it is built.

Later would be too late: scripts ask for `len(loader)` before they train. The name counts most (of the function that
builds it, then what it is assigned to), as a shuffled validation loader is still one. Without a name, what only
training does: shuffling, and dropping the last batch. An order that is kept shows nothing.
"""

from __future__ import annotations

import linecache
import re
from types import FrameType
from typing import Any

from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from hotlap.facts.timeline import Place

_TRAINS = re.compile(r"train", re.IGNORECASE)
_OTHER = re.compile(r"val|eval|test|pred|dev|infer|calib", re.IGNORECASE)
_FRAMES = 12  # from DataLoader.__init__ outwards: a framework's hook is not further away
_SHUFFLING = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


def feeds_training(arguments: dict[str, Any], frame: FrameType | None, place: Place | None) -> bool | None:
    """None where nothing shows it."""
    for name in (*_builders(frame), _assigned(place)):
        if (told := _told(name)) is not None:
            return told
    return True if _shuffles(arguments) or _drops_last(arguments) else None


def _builders(frame: FrameType | None) -> list[str]:
    """Functions on the way to the loader that are called after one: `train_dataloader`, `get_eval_dataloader`."""
    names: list[str] = []
    while frame is not None and len(names) < _FRAMES:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return [name for name in names if "loader" in name.lower()]


def _assigned(place: Place | None) -> str:
    """What stands before the call on its line: `train_loader = `, `"train": `."""
    if place is None:
        return ""
    line = place.code or linecache.getline(place.file, place.line)
    return re.split(r"\w*Loader\(|=[^=]", line, maxsplit=1)[0]


def _told(name: str) -> bool | None:
    trains, other = bool(_TRAINS.search(name)), bool(_OTHER.search(name))
    return None if trains == other else trains


def _shuffles(arguments: dict[str, Any]) -> bool:
    sampler = arguments["sampler"] if arguments["batch_sampler"] is None else arguments["batch_sampler"]
    while sampler is not None:
        if isinstance(sampler, _SHUFFLING) or getattr(sampler, "shuffle", False) is True:
            return True
        inner = getattr(sampler, "batch_sampler", None)
        sampler = getattr(sampler, "sampler", None) if inner is None else inner
    return bool(arguments["shuffle"])


def _drops_last(arguments: dict[str, Any]) -> bool:
    batches = arguments["batch_sampler"]
    # A DistributedSampler's drop_last is about ranks of equal length, and validation may want that too.
    return bool(arguments["drop_last"] if batches is None else getattr(batches, "drop_last", False))
