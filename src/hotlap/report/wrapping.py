"""Where a terminal may break a line: never before a unit, in Chinese between any two characters.

rich breaks at blanks only, a no-break space included. So text is prepared before rich wraps it, and finished
after.
"""

from __future__ import annotations

import re
import textwrap

_GLUE = "\ue000"  # of the private use area: one column wide, and in no text
_UNIT = re.compile(r"(?<=\d) (?=(?:%|ms|us|s|min|h|B|[KMGT]iB)(?!\w))")
# Chinese characters and marks. A closing mark stays with what it closes, an opening one with what it opens.
_WIDE = "\u2e80-\ud7ff\uff00-\uffef"
_CHINESE = re.compile(f"[{_WIDE}]")
_WORD = re.compile(f"[（“]*(?:[^\\s（“{_WIDE}]+|[{_WIDE}])[，。；：、）”！？]*|\\s+")


def prepared(text: str, width: int) -> str:
    """Text that rich may wrap to a width."""
    glued = _UNIT.sub(_GLUE, text)
    return _broken(glued, width) if _CHINESE.search(glued) else glued


def finished(line: str) -> str:
    """A line that rich has made, as it is shown."""
    return line.replace(_GLUE, " ")


def folded(text: str, width: int = 100) -> str:
    """Plain text in lines of at most this width."""
    if _CHINESE.search(text):
        return _broken(text, width)
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def _broken(text: str, width: int) -> str:
    from rich.cells import cell_len

    lines = [""]
    for word in _WORD.findall(text):
        if cell_len(lines[-1]) + cell_len(word.rstrip()) > width:
            lines.append("")
        begins_later_line = len(lines) > 1 and not lines[-1]
        lines[-1] += word.lstrip() if begins_later_line else word
    return "\n".join(lines)
