"""Which code is the user's: what lies outside the standard library and the installed packages.

A training package that was itself installed counts as the user's when it is what runs (`python -m package.train`).
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from types import CodeType

_PROBE = str(Path(__file__).resolve().parents[1]) + os.sep


class UserCode:
    """Remembers the answer per code object: it is asked for every frame of every sample."""

    def __init__(self) -> None:
        paths = sysconfig.get_paths()
        self._libraries = tuple({paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"]})
        self._main_package: str | None = None
        self._owned: dict[CodeType, bool] = {}

    def owns(self, code: CodeType) -> bool:
        owned = self._owned.get(code)
        if owned is None:
            owned = self._owned[code] = self._judge(code.co_filename)
        return owned

    def is_probe(self, code: CodeType) -> bool:
        return code.co_filename.startswith(_PROBE)

    def _judge(self, file: str) -> bool:
        if file.startswith(("<", _PROBE)):
            return False
        package = self._main_package_folder()
        if package and file.startswith(package):
            return True
        parts = ("site-packages", "dist-packages")
        return not file.startswith(self._libraries) and not any(part in file for part in parts)

    def _main_package_folder(self) -> str:
        if self._main_package is None:
            spec = getattr(sys.modules.get("__main__"), "__spec__", None)
            top = sys.modules.get(spec.name.partition(".")[0]) if spec and "." in spec.name else None
            file = getattr(top, "__file__", None)
            self._main_package = str(Path(file).parent) + os.sep if file else ""
        return self._main_package
