"""Cards in the terminal: the docstring of a unit's module, whole or its first line."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Mapping

_WIDEST = 100
_BEGINS_ANEW = re.compile(r"`[^`]+`:|[-*] ")  # a line of a list: it is not joined to the line before


def whole(name: str, card: str) -> str:
    """One card under its name, its paragraphs wrapped to the terminal."""
    lines = (line for paragraph in _paragraphs(card.strip().splitlines()) for line in _wrapped(paragraph))
    return "\n".join([name, *lines, ""])


def listing(cards: Mapping[str, str]) -> str:
    """One entry for each unit: its id and the first line of its card."""
    width = max(len(name) for name in cards) + 2
    entries = [f"{name:{width}}{card.strip().partition(chr(10))[0]}" for name, card in sorted(cards.items())]
    return "".join(f"{line}\n" for entry in entries for line in _wrap(entry, "", " " * width))


def _paragraphs(lines: Iterable[str]) -> Iterable[str]:
    paragraph = ""
    for line in lines:
        joins = paragraph and _indent(line) == _indent(paragraph) and not _BEGINS_ANEW.match(line.strip())
        if joins and line.strip() and _indent(line):
            paragraph += f" {line.strip()}"
            continue
        yield from [paragraph] if paragraph else []
        paragraph = line
        if not line.strip():
            yield ""
            paragraph = ""
    yield paragraph


def _wrapped(paragraph: str) -> list[str]:
    indent = " " * _indent(paragraph)
    hanging = indent + "  " if _BEGINS_ANEW.match(paragraph.strip()) else indent
    return _wrap(paragraph.strip(), indent, hanging) or [""]


def _wrap(text: str, first: str, later: str) -> list[str]:
    return textwrap.wrap(
        text, _width(), initial_indent=first, subsequent_indent=later, break_on_hyphens=False
    )


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _width() -> int:
    return min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns)
