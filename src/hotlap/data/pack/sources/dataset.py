"""Any map-style dataset that Python can import: mypkg.data:TrainSet, built with the arguments of --arg."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from hotlap.data.pack.source import Arguments, SampleSource
from hotlap.data.samples import SampleError, checksum, flatten
from hotlap.errors import UsageError
from hotlap.sameness.epochs import NoOtherEpochError, in_other_epochs

_LOOKED_AT_TWICE = 3
"""Items that are fetched twice before anything is packed: one draw of a random item must not be frozen unseen."""


class DatasetSource(SampleSource):
    structured: ClassVar[bool] = True

    @classmethod
    def recognises(cls, name: str) -> bool:
        return re.fullmatch(r"[\w.]+:[\w.]+", name) is not None and not Path(name).exists()

    def __init__(self, name: str, arguments: Arguments) -> None:
        self._name = name
        self._arguments = dict(arguments)
        found = import_object(name)
        self._data = _built(name, found, arguments) if callable(found) else found
        if not hasattr(self._data, "__getitem__") or not hasattr(self._data, "__len__"):
            what = f"{name} is no map-style dataset: it lacks __getitem__ or __len__."
            raise UsageError(what, "name a dataset with a length, whose items have numbers")
        self._module_file = getattr(sys.modules[name.partition(":")[0]], "__file__", None)

    @property
    def keys(self) -> Sequence[str]:
        return _Numbers(len(self._data))

    def read(self, index: int) -> Any:
        return self._data[index]

    def fingerprint(self) -> str:
        """Of the code, the arguments, the length and the first items."""
        digest = hashlib.sha256(f"{self._name}{sorted(self._arguments.items())}{len(self._data)}".encode())
        if self._module_file:
            digest.update(Path(self._module_file).read_bytes())
        for index in range(min(_LOOKED_AT_TWICE, len(self._data))):
            first, again = (checksum(flatten(self._data[index])[0]) for _ in range(2))
            if first != again:
                what = f"{self._name} is random: item {index} was not the same twice."
                raise SampleError(what, "pack it without its random transforms, and apply those in training")
            self._require_lasting(index, first)
            digest.update(first.to_bytes(4, "little"))
        return digest.hexdigest()

    def _require_lasting(self, index: int, first: int) -> None:
        """What is packed serves every epoch."""
        remedy = "pack it without what changes by the epoch, and apply that in training"
        try:
            others = in_other_epochs(self._data)
        except NoOtherEpochError as fault:
            what = f"{self._name} is told the epoch, and its items of another one could not be looked at ({fault})."
            raise SampleError(what, remedy) from fault
        if any(checksum(flatten(other[index])[0]) != first for other in others):
            raise SampleError(
                f"{self._name} changes with the epoch: item {index} is another one then.", remedy
            )


class _Numbers(Sequence[str]):
    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        return f"{range(self._count)[index]:09}"


def import_object(name: str) -> Any:
    """What `module:name` stands for; the folder of the user is looked in first, as Python does."""
    module, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and module.startswith(error.name):
            remedy = f"run hotlap in the folder of {module.partition('.')[0]}, or install it"
            raise UsageError(f"there is no module '{error.name}'.", remedy) from None
        raise UsageError(f"{module} cannot be imported: {error}.", "install what it needs") from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{module} has no '{part}'.", "check the name after the colon")
        found = getattr(found, part)
    return found


def _built(name: str, factory: Any, arguments: Arguments) -> Any:
    try:
        return factory(**arguments)
    except TypeError as error:
        signature = _signature(factory)
        raise UsageError(
            f"{name} cannot be built: {error}.", f"give --arg KEY=VALUE; it takes {signature}"
        ) from error


def _signature(factory: Any) -> str:
    try:
        return str(inspect.signature(factory))
    except (TypeError, ValueError):
        return "what its documentation says"
