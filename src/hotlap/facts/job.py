"""A training command as the user runs it, unmodified."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """What is executed (`argv`), where, and what it is called in reports."""

    argv: tuple[str, ...]
    cwd: str
    name: str

    @property
    def shown(self) -> str:
        """The command as one would type it, with the interpreter's path left away."""
        words = list(self.argv)
        if words and Path(words[0]).name.startswith("python"):
            words[0] = "python"
        return shlex.join(words)
