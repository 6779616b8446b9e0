"""Keeps hotlap's wrappers out of the count that `warnings.warn(stacklevel=...)` makes: the user's line is shown.

Python leaves out frames of its import system when it counts, and knows them by their file's name. Wrappers take part in
that; the name still begins with their own file, so that whoever looks for hotlap's frames finds them.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any, TypeVar

_OWN = str(Path(__file__).resolve().parents[1]) + os.sep
_MARK = " (as importlib._bootstrap)"  # `_is_internal_frame` in Lib/warnings.py looks for these two words

Call = TypeVar("Call", bound=Callable[..., Any])


def unseen(wrapper: Call) -> Call:
    """The same wrapper, left out with the wrappers of hotlap that it calls."""
    pending: list[Any] = [wrapper]
    while pending:
        each = pending.pop()
        each = each.__func__ if isinstance(each, MethodType) else each
        if isinstance(each, FunctionType) and _is_seen(each.__code__):
            each.__code__ = _renamed(each.__code__)
            pending += [cell.cell_contents for cell in each.__closure__ or () if _filled(cell)]
    return wrapper


def _is_seen(code: CodeType) -> bool:
    return code.co_filename.startswith(_OWN) and not code.co_filename.endswith(_MARK)


@functools.cache
def _renamed(code: CodeType) -> CodeType:
    return code.replace(co_filename=code.co_filename + _MARK)


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
