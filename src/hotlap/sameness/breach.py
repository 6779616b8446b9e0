"""A breach: a setting that claimed the same numbers served others. It is never silent.

Any process of a job may find one, also a worker of a loader: it prints one line and leaves a file for the parent beside
the records of the job. The parent marks the run, and under `--strict` the job ends.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

ENDING = ".breach.json"
STRICT = "strict"  # among the options of a plan: a breach ends the job
EXIT_CODE = 3  # of a job that a breach has ended


@dataclass(frozen=True)
class Breach:
    """`what` names the item or the thing that changed. `batches`: served since the last check that agreed, so this many
    at most were not what the script would have trained on; None where that is not known."""

    knob: str
    what: str
    batches: int | None = None

    def line(self) -> str:
        many = "" if self.batches is None else f" Up to {self.batches} batches before this may differ."
        return f"hotlap: NOT THE SAME MODEL: {self.knob}: {self.what}.{many} {self.knob} is off from here on."


def order_changed(knob: str, what: str) -> Breach:
    """Of a loader that chose its batches ahead of the script."""
    made = f"{what}, which its sampler can depend on, changed after batches had been chosen at another time"
    return Breach(knob, made)


def items_changed(knob: str, what: str, batches: int, own_workers: bool) -> Breach:
    """Of a loader that fetched items ahead of the script; `own_workers`: the script's loader has some."""
    made = (
        f"the script changed {what} while the epoch ran, which its own workers would not have seen"
        if own_workers
        else f"the script changed {what} while batches were made ahead"
    )
    return Breach(knob, made, batches)


found: list[Breach] = []
_folder: list[Path] = []
_flag: list[mmap.mmap] = []  # one byte that forked processes share


def report_to(folder: Path) -> None:
    """Where this process and those that it forks leave what they find."""
    _folder[:] = [folder]
    _flag[:] = [mmap.mmap(-1, 1)]


def declared() -> bool:
    """Whether this process, or one that it has forked, has found a breach."""
    return bool(found) or bool(_flag and _flag[0][0])


def declare(breach: Breach) -> None:
    """Print, record and remember it, once."""
    if breach in found:
        return
    found.append(breach)
    if _flag:
        _flag[0][0] = 1
    print(breach.line(), file=sys.stderr, flush=True)
    _write()


def read(folder: Path) -> list[Breach]:
    """What the processes of a job have left there."""
    all_found: dict[Breach, None] = {}
    for path in sorted(folder.glob(f"*{ENDING}")):
        try:
            rows = json.loads(path.read_text(encoding="utf-8"))
            all_found |= dict.fromkeys(Breach(row["knob"], row["what"], row["batches"]) for row in rows)
        except (OSError, ValueError, KeyError, TypeError):  # cut off, or not ours
            all_found[Breach("unknown", f"the record {path.name} cannot be read")] = None
    return list(all_found)


def _write() -> None:
    if not _folder:
        return
    try:
        path = _folder[0] / f"{os.getpid()}{ENDING}"
        path.write_text(json.dumps([asdict(each) for each in found]), encoding="utf-8")
    except OSError as fault:  # the line is printed all the same
        print(f"hotlap: the breach could not be recorded: {fault}", file=sys.stderr, flush=True)
