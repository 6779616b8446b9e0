"""Several plans in turn within one training process: what is asked for, and when each of them stood."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotlap.facts import codec

NAME = "blocks.jsonl"
NOT_LIVE = "nothing was met that it could act on between two steps"


@dataclass(frozen=True)
class Schedule:
    """`plans[0]` is the incumbent: its blocks stand between those of the others, `turns` times for each of them.

    A block lasts `block_s` at the pace that the first steps show, and `least_steps` at least.
    """

    plans: tuple[Mapping[str, Any], ...]
    turns: int = 2
    block_s: float = 0.5
    least_steps: int = 12
    warm_steps: int = 12

    @property
    def order(self) -> tuple[int, ...]:
        """0 1 0 2 0 3 0 3 0 2 0 1 0 ...: each block of a challenger has one of the incumbent on both sides."""
        others = range(1, len(self.plans))
        walk = [
            other for turn in range(self.turns) for other in (others if turn % 2 == 0 else reversed(others))
        ]
        return (0, *(each for other in walk for each in (other, 0)))


@dataclass(frozen=True)
class Block:
    """Nanoseconds on the run's clock. `refused` says why the plan could not be put in place live."""

    plan: int
    begin: int
    end: int
    refused: str = ""


def write_block(folder: Path, block: Block) -> None:
    with (folder / NAME).open("a", encoding="utf-8") as file:
        file.write(json.dumps(codec.to_plain(block)) + "\n")


def read_blocks(folder: Path) -> tuple[Block, ...]:
    path = folder / NAME
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return tuple(codec.from_plain(Block, json.loads(line)) for line in lines)
