"""Replaces functions of a class, a module or an instance, and puts them back."""

from __future__ import annotations

from typing import Any

from hotlap.ports.target import Around, Undo
from hotlap.ports.unseen import unseen


class PatchStack:
    """Undone one by one, or all at once, the newest first."""

    def __init__(self) -> None:
        self._undo: list[Undo] = []

    def wrap(self, owner: Any, name: str, around: Around) -> Undo:
        own = name in vars(owner)
        original = vars(owner)[name] if own else getattr(owner, name)
        wrapped = isinstance(original, staticmethod | classmethod)
        replacement: Any = unseen(around(original.__func__ if wrapped else original))
        setattr(owner, name, type(original)(replacement) if wrapped else replacement)

        def undo() -> None:
            if undo in self._undo:
                self._undo.remove(undo)
                setattr(owner, name, original) if own else delattr(owner, name)

        self._undo.append(undo)
        return undo

    def keep(self, undo: Undo) -> None:
        """Something else that is to be undone with them."""
        self._undo.append(undo)

    def undo_all(self) -> None:
        for undo in reversed(list(self._undo)):
            undo()
        self._undo.clear()
