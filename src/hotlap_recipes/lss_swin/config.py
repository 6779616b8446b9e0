"""Configurations the mm way: found, read with mmengine's Config, merged with options, checked."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmengine.config import Config

from hotlap_recipes.lss_swin import BadInputError
from hotlap_recipes.lss_swin.keys import check

PACKAGE = Path(__file__).parent


def load(path: str, options: Mapping[str, Any] | None = None) -> Any:
    """The configuration of a file under the working directory, or of this package, with `options` over it."""
    file = find(path)
    try:
        config = Config.fromfile(str(file))
    except (SyntaxError, NameError, KeyError, TypeError, AttributeError, OSError) as error:
        raise BadInputError(
            f"{file} cannot be read: {error}.", "it is a Python file of plain values."
        ) from error
    config.merge_from_dict(dict(options or {}))
    check(config)
    return config


def find(path: str) -> Path:
    """`configs/lss_swin_nuscenes.py` is found wherever the package is installed; a file of the user's comes first."""
    for file in (Path(path), PACKAGE / path, PACKAGE / "configs" / path):
        if file.is_file():
            return file
    names = sorted(f"configs/{file.name}" for file in (PACKAGE / "configs").glob("*.py"))
    near = difflib.get_close_matches(path, names, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"this recipe has {', '.join(names)}."
    raise BadInputError(f"there is no configuration {path!r}.", remedy)
