"""Why a dataset is not cached."""

from __future__ import annotations

from hotlap.errors import HotlapError


class CannotCacheError(HotlapError):
    """The dataset's items cannot be kept and served as they are; says why in one clause."""


class NoFileError(CannotCacheError):
    """The items can be kept, but not in a file that later runs would trust."""
