"""A renderer draws a view; it computes nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar


class Renderer(ABC):
    """One output. `view` is the plain data of report/view.py, the same that `--json` prints."""

    id: ClassVar[str]
    suffix: ClassVar[str]

    @abstractmethod
    def render(self, view: Mapping[str, Any], lang: str = "en") -> str:
        """The whole document as text."""
