"""The view itself, for programs: one line per part, so that it can also be read and compared by people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from hotlap.ports.renderer import Renderer


class Json(Renderer):
    """The same in every language: facts have no words."""

    id: ClassVar[str] = "json"
    suffix: ClassVar[str] = ".json"

    def render(self, view: Mapping[str, Any], lang: str = "en") -> str:
        # ASCII only: paths may hold bytes that are no text, and a pipe may have any encoding.
        parts = (f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in view.items())
        return "{\n" + ",\n".join(parts) + "\n}\n"
