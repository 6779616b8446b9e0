"""Which faults of a script are of memory, told from the exception that ended it. Known without torch."""

from __future__ import annotations

from collections.abc import Iterator

OUT_OF_MEMORY, KILLED, OTHER = "out-of-memory", "killed", "other"

_MEMORY = ("can't allocate memory", "CUDA out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "not enough memory:")
# All that oneDNN says where it finds no memory for an operator's own buffers. With more words it is something else.
_ONEDNN = "could not create a primitive"
_KILLED = ("Signal 9 (SIGKILL)", "exitcode: -9", "exitcode  : -9", "terminated with signal SIGKILL")
_MOST_CAUSES = 8


def kind_of(error: BaseException) -> str:
    """Out of memory, killed (a launcher tells of its child), or something that is not of memory."""
    for each in _causes(error):
        named = any(kind.__name__ == "OutOfMemoryError" for kind in type(each).__mro__)
        if named or isinstance(each, MemoryError) or _says(each, _MEMORY) or str(each) == _ONEDNN:
            return OUT_OF_MEMORY
    return KILLED if any(_says(each, _KILLED) for each in _causes(error)) else OTHER


def _says(error: BaseException, words: tuple[str, ...]) -> bool:
    text = str(error)
    return any(each in text for each in words)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exception and those that led to it: frameworks raise others on the way out."""
    found: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if found is None:
            return
        yield found
        found = found.__cause__ or found.__context__
