"""Which code is the user's: what lies outside the standard library and the installed packages.

A training package that was itself installed counts as the user's when it is what runs: `python -m package.train`, or
the path of a script in it.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from types import CodeType

_PROBE = str(Path(__file__).resolve().parents[1]) + os.sep
_CELLS = "<ipython-input-"  # of a notebook without files of its own
_INSTALLED = ("site-packages", "dist-packages")


class UserCode:
    """Remembers the answer per file: it is asked for every frame of every sample.

    Not per code object: two of them are equal when their text is, whichever files they come from.
    """

    def __init__(self) -> None:
        paths = sysconfig.get_paths()
        self._libraries = tuple({paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"]})
        self._main_package: str | None = None
        self._owned: dict[str, bool] = {}

    def owns(self, code: CodeType) -> bool:
        return self.owns_file(code.co_filename)

    def owns_file(self, file: str) -> bool:
        owned = self._owned.get(file)
        if owned is None:
            owned = self._owned[file] = self._judge(file)
        return owned

    def is_probe(self, code: CodeType) -> bool:
        return code.co_filename.startswith(_PROBE)

    def _judge(self, file: str) -> bool:
        if file.startswith(("<", _PROBE)):
            return file.startswith(_CELLS)
        package = self._main_package_folder()
        if package and file.startswith(package):
            return True
        return not file.startswith(self._libraries) and not any(part in file for part in _INSTALLED)

    def _main_package_folder(self) -> str:
        if self._main_package is None:
            main = sys.modules.get("__main__")
            spec = getattr(main, "__spec__", None)
            top = sys.modules.get(spec.name.partition(".")[0]) if spec else main
            file = getattr(top, "__file__", None)
            folder = Path(file).parent if file else None
            alone = folder is None or folder.name in _INSTALLED  # one file among all that is installed
            self._main_package = "" if alone else f"{folder}{os.sep}"
        return self._main_package
