"""`%load_ext hotlap` for IPython and Jupyter: `%%hotlap profile` profiles what stands in the cell."""

from __future__ import annotations

import shlex
from typing import Any

from hotlap.errors import HotlapError, UsageError
from hotlap.notebook.profiling import Profiled, profile

_USAGE = "%%hotlap profile [NAME]"


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext hotlap`."""

    def hotlap(line: str, cell: str) -> Profiled | None:
        """%%hotlap profile [NAME]: run the cell, and show where the time of its training steps goes."""
        try:
            return _profiled(shell, shlex.split(line), cell)
        except HotlapError as error:
            print(f"hotlap: {error}")
            return None

    shell.register_magic_function(hotlap, "cell", "hotlap")


def _profiled(shell: Any, words: list[str], cell: str) -> Profiled:
    if not words or words[0] != "profile" or len(words) > 2:
        raise UsageError(f"'%%hotlap {' '.join(words)}' is not known.", f"write {_USAGE}")
    text = shell.transform_cell(cell)
    file = shell.compile.cache(
        text, shell.execution_count, raw_code=cell
    )  # its lines can be looked up by this name
    code = shell.compile(shell.transform_ast(shell.compile.ast_parse(text, filename=file)), file, "exec")
    # As %%time does: a cell that ran a cell would lose its own result.
    return profile(lambda: exec(code, shell.user_ns), name=words[1] if len(words) > 1 else "notebook")
