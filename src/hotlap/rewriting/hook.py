"""Loads modules and scripts with rewritten functions; the files on disk stay as they are.

Only files that a plan names are compiled here, all others are loaded as ever. A file whose source has changed since is
loaded as it is, and the reason is kept for the plan's record.
"""

from __future__ import annotations

import ast
import os
import runpy
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from hotlap import rewrites
from hotlap.discover import unit, units
from hotlap.facts.rewrite import Rewriting
from hotlap.ports.rewrite import Edit, Function, Rewrite, Site
from hotlap.source.files import ChangedFile, SourceFile, UnreadableError, changed_file
from hotlap.source.values import Observed

_reasons: dict[str, str] = {}
"""Of this process: by a rewrite's key why it is refused, empty where it is in place."""


def installed() -> dict[str, str]:
    """Rewrites that this process has loaded its modules with, and why some are refused."""
    return dict(_reasons)


def install(wanted: Iterable[Rewriting], folder: str, prepared: Mapping[str, dict[str, Any]]) -> None:
    """Called once, before any of the user's code; files are relative to the folder. What the parent has prepared is
    taken where the file is still the same."""
    changed: dict[str, ChangedFile] = {}
    for file, several in _by_file(wanted, folder).items():
        ready = _ready(file, prepared[file]) if file in prepared else None
        if ready is not None:
            changed[file] = ready
            _reasons.update({each.key: "" for each in several})
            continue
        accepted: list[Rewriting] = []
        for each in several:
            _reasons[each.key], made = _edited(file, [*accepted, each])
            if made is not None:
                accepted.append(each)
                changed[file] = made
    if changed:
        _Loading(changed).install()


def prepare(wanted: Iterable[Rewriting], folder: str) -> dict[str, dict[str, Any]]:
    """For `install`, by file. One with a rewrite that is refused is left to the training process, which tells why."""
    found = {}
    for file, several in _by_file(wanted, folder).items():
        changed = _edited(file, several)[1]
        if changed is not None:
            found[file] = changed.plain()
    return found


def _by_file(wanted: Iterable[Rewriting], folder: str) -> dict[str, list[Rewriting]]:
    found: dict[str, list[Rewriting]] = {}
    for each in wanted:
        found.setdefault(os.path.realpath(Path(folder, each.file)), []).append(each)
    return found


def _ready(file: str, prepared: dict[str, Any]) -> ChangedFile | None:
    """None where the file has changed since, or this Python does not compile what the parent has made."""
    try:
        found = ChangedFile.of(Path(file).read_bytes(), prepared)
        if found is not None:
            found.check()
    except (OSError, SyntaxError, ValueError, UnreadableError):
        return None
    return found


def _edited(file: str, wanted: list[Rewriting]) -> tuple[str, ChangedFile | None]:
    """Why they are refused; else the file with its edits, which can be parsed."""
    try:
        found = changed_file(*edited_file(Path(file), wanted))
        found.check()
    except UnreadableError as error:
        return str(error), None
    except (SyntaxError, ValueError) as error:
        return f"the rewritten source cannot be compiled: {error}", None
    return "", found


class _Loading:
    """Stands in three ways to code: modules, the script itself, and the script in a spawned process."""

    def __init__(self, changed: dict[str, ChangedFile]) -> None:
        self._changed = changed

    def install(self) -> None:
        self._around(SourceFileLoader, "get_code", self._get_code)
        self._around(runpy, "_get_code_from_file", self._get_code_from_file)
        script = sys.argv[0] if getattr(sys, "argv", None) else ""
        if script and script not in ("-c", "-m") and self._knows(script):
            sys.path_hooks.insert(0, _Script(script, self._of(script)).hook)

    def _around(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        original = getattr(owner, name, None)
        if original is not None:
            setattr(owner, name, make(original))

    def _knows(self, file: str) -> bool:
        return os.path.realpath(file) in self._changed

    def _of(self, file: str) -> ChangedFile:
        return self._changed[os.path.realpath(file)]

    def _get_code(self, original: Callable[..., CodeType | None]) -> Callable[..., CodeType | None]:
        def get_code(loader: SourceFileLoader, fullname: str) -> CodeType | None:
            file, found = str(loader.path), original(loader, fullname)
            return self._of(file).within(found, file) if found is not None and self._knows(file) else found

        return get_code

    def _get_code_from_file(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def get_code_from_file(*args: Any) -> Any:
            found = original(*args)
            file = str(args[-1])
            if not self._knows(file):
                return found
            before = found[0] if isinstance(found, tuple) else found
            code = self._of(file).within(before, os.fspath(Path(file).absolute()))
            return (code, *found[1:]) if isinstance(found, tuple) else code

        return get_code_from_file


class _Script:
    """Python runs a path that an importer claims as `__main__` of it. From then on all is as for a plain script."""

    def __init__(self, script: str, changed: ChangedFile) -> None:
        self._script, self._changed = script, changed

    def hook(self, path: str) -> _Script:
        """Python asks with the absolute path."""
        if os.path.realpath(path) != os.path.realpath(self._script):
            raise ImportError(path)
        self._script = path
        return self

    def find_spec(self, fullname: str, _: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != "__main__":
            return None
        return ModuleSpec("__main__", self, origin=self._script)  # type: ignore[arg-type]

    def create_module(self, _: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        raise ImportError(f"{module.__name__} is the script")

    def get_code(self, _: str) -> CodeType:
        call = f"__import__({__name__!r}, fromlist=['x']).begin_script(globals(), {self._script!r})"
        return self._changed.whole(self._script, ast.parse(call).body[0])


def begin_script(namespace: dict[str, Any], script: str) -> None:
    """The first statement of a script: its path and its namespace become those of a script that Python has read."""
    sys.path_hooks[:] = [
        each for each in sys.path_hooks if not isinstance(getattr(each, "__self__", None), _Script)
    ]
    sys.path_importer_cache.pop(script, None)
    if sys.path and sys.path[0] == script:
        folder = str(Path(os.path.realpath(script)).parent)
        sys.path[:1] = [] if getattr(sys.flags, "safe_path", False) else [folder]
    namespace |= {"__spec__": None, "__package__": None, "__cached__": None, "__file__": script}
    namespace["__loader__"] = SourceFileLoader("__main__", script)


# From a pattern and a place to the edits of a file, in the parent and in the training process alike.


CHANGED = "the source of {function} in {file} has changed since"


@dataclass(frozen=True)
class Spotted:
    """A site with the pattern that recognised it, its edits, and the values that this rests on."""

    pattern: Rewrite
    function: Function
    site: Site
    edits: tuple[Edit, ...]
    seen: Mapping[str, str]

    @property
    def at(self) -> str:
        """Row and column from the beginning of the function."""
        row = getattr(self.site.node, "lineno", 1) - self.function.first_line
        return f"{row}:{getattr(self.site.node, 'col_offset', 0)}"


@cache
def all_rewrites() -> dict[str, Rewrite]:
    return {each.id: each for each in units(rewrites, Rewrite)}  # type: ignore[type-abstract]


def spotted(function: Function, values: Mapping[str, str], only: Rewrite | None = None) -> list[Spotted]:
    """All sites in one function. A fault of one pattern is no site."""
    found = []
    for pattern in [only] if only is not None else all_rewrites().values():
        seen = Observed(values, function.module)
        for site in pattern.recognise(function, seen):
            edits = pattern.rewrite(function, site, seen)
            found.append(Spotted(pattern, function, site, edits, dict(seen.asked)))
    return found


def edits_of(source: SourceFile, wanted: Iterable[Rewriting]) -> list[Edit]:
    """Of one file; raises UnreadableError where its source is not what was looked at."""
    found: list[Edit] = []
    for each in wanted:
        found += _edits(source, each)
    return found


def _edits(source: SourceFile, wanted: Rewriting) -> Sequence[Edit]:
    changed = CHANGED.format(function=wanted.function, file=wanted.file)
    try:
        pattern = unit(rewrites, Rewrite, wanted.id)  # type: ignore[type-abstract]
    except (ModuleNotFoundError, IndexError):
        raise UnreadableError(f"this hotlap knows no rewrite '{wanted.id}'") from None
    for function in source.functions:
        if function.qualname == wanted.function and source.hash_of(function) == wanted.hash:
            here = {each.at: each.edits for each in spotted(function, wanted.seen, pattern)}
            if not all(here.get(at) for at in wanted.at):
                raise UnreadableError(f"{wanted.id} is not recognised at {wanted.file}:{wanted.line}")
            return [edit for at in wanted.at for edit in here[at]]
    raise UnreadableError(changed)


def edited_file(path: Path, wanted: Iterable[Rewriting]) -> tuple[SourceFile, list[Edit]]:
    """The file on disk with the edits that would be made."""
    source = SourceFile.read(path)
    return source, edits_of(source, wanted)
