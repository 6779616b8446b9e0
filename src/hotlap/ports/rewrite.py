"""A rewrite is a change of the user's own source: a pattern, recognised by its text and by what flowed through it.

The module's docstring is its card: What it is, Before, After, When it is the same, When it is not.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import ClassVar

from hotlap.ports.knob import Numerics

TENSOR, ARRAY = "torch.Tensor", "numpy.ndarray"
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_PRIMARY = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Constant, ast.List, ast.Dict)


@dataclass(frozen=True)
class Value:
    """What was seen of a value: its type, and of tensors and arrays dtype, shape and device.

    In text: `torch.Tensor float32 16000x2 cpu`, `list 5 torch.Tensor`, `train.Net torch.nn.modules.module.Module`.
    """

    type: str
    rest: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str) -> Value:
        first, *rest = text.split(" ")
        return cls(first, tuple(rest))

    @property
    def dtype(self) -> str:
        return self.rest[0] if self.type in (TENSOR, ARRAY) and self.rest else ""

    @property
    def shape(self) -> tuple[int, ...] | None:
        """-1 stands for a size that is not known."""
        if self.type not in (TENSOR, ARRAY) or len(self.rest) < 2:
            return None
        sizes = self.rest[1].split("x") if self.rest[1] != "scalar" else []
        return tuple(int(each) if each.isdigit() else -1 for each in sizes)

    @property
    def size(self) -> str:
        """As people write it; empty where it is not known."""
        known = self.shape is not None and -1 not in self.shape
        return self.rest[1] if known else ""

    @property
    def grad(self) -> bool:
        return "grad" in self.rest

    @property
    def element(self) -> Value | None:
        """The first one of a container."""
        holds = self.type in ("list", "tuple", "dict") and len(self.rest) > 1
        return Value(self.rest[1], self.rest[2:]) if holds else None

    def is_a(self, *types: str) -> bool:
        """Whether its type or one of its bases is one of these, by full name or by the last part of it."""
        own = (self.type, *self.rest) if self.type not in (TENSOR, ARRAY) else (self.type,)
        return any(each in types or each.rpartition(".")[2] in types for each in own)


class Seen(ABC):
    """What was seen at run time of the values that a function's names stood for."""

    @abstractmethod
    def value(self, node: ast.expr) -> Value | None:
        """Of an expression; None where nothing was seen."""

    def is_tensor(self, node: ast.expr, *, or_array: bool = False) -> bool:
        value = self.value(node)
        return value is not None and (value.type == TENSOR or (or_array and value.type == ARRAY))


@dataclass(frozen=True)
class Edit:
    """Replace the bytes from `start` to `end` of a file."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Function:
    """One function of a file, or the module's own statements; those of functions within it are not its own."""

    qualname: str
    node: Scope
    source: bytes
    starts: tuple[int, ...]  # of lines, in bytes
    parents: Mapping[ast.AST, ast.AST] = field(repr=False)
    module: ast.Module = field(repr=False)

    @property
    def first_line(self) -> int:
        decorators: list[ast.expr] = getattr(self.node, "decorator_list", [])
        return min([getattr(self.node, "lineno", 1), *(each.lineno for each in decorators)])

    @property
    def last_line(self) -> int:
        return getattr(self.node, "end_lineno", None) or len(self.starts)

    def walk(self) -> tuple[ast.AST, ...]:
        """Nodes of this function, without those of functions and classes in it."""
        return self._nodes

    @cached_property
    def _nodes(self) -> tuple[ast.AST, ...]:
        found: list[ast.AST] = []
        waiting = [*ast.iter_child_nodes(self.node)][::-1]
        while waiting:
            node = waiting.pop()
            found.append(node)
            if not isinstance(node, _SCOPES):
                waiting += [*ast.iter_child_nodes(node)][::-1]
        return tuple(found)

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Of a node, in bytes of the file."""
        lineno, end = getattr(node, "lineno", 1), getattr(node, "end_lineno", 1)
        column, end_column = getattr(node, "col_offset", 0), getattr(node, "end_col_offset", 0)
        return self.starts[lineno - 1] + column, self.starts[end - 1] + end_column

    def text(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.source[start:end].decode()

    def primary(self, node: ast.expr) -> str:
        """Its text, as something that `.method()` can follow."""
        number = isinstance(node, ast.Constant) and isinstance(node.value, int | float)
        plain = isinstance(node, _PRIMARY) and not number
        return self.text(node) if plain else f"({self.text(node)})"

    def replace(self, node: ast.AST, text: str) -> Edit:
        return Edit(*self.span(node), text)

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement that an expression stands in."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def loops(self, node: ast.AST) -> Iterator[ast.For | ast.While | ast.AsyncFor]:
        """Loops of this function that a node is in the body of, the innermost first."""
        child, parent = node, self.parents.get(node)
        while parent is not None and not isinstance(child, _SCOPES):
            if isinstance(parent, ast.For | ast.While | ast.AsyncFor) and child in parent.body:
                yield parent
            child, parent = parent, self.parents.get(parent)


@dataclass(frozen=True)
class Site:
    """A place where a pattern was recognised.

    `node` says where it is, `lines` which lines it holds where these are more than the node's own. `values` fill the
    pattern's sentence. `numerics` is its class here, by default the pattern's. With `advice` nothing is tried.
    """

    node: ast.AST
    values: Mapping[str, str] = field(default_factory=dict)
    numerics: Numerics | None = None
    lines: tuple[int, int] | None = None
    advice: bool = False

    @property
    def held(self) -> tuple[int, int]:
        own = (getattr(self.node, "lineno", 1), getattr(self.node, "end_lineno", 1))
        return self.lines or own


class Cost(StrEnum):
    """What a pattern costs.

    TIME is seen at its lines, as samples or as waits for the device. The others leave no trace at a line of their own
    and are looked for in every file of which a line was seen: MEMORY that is held, a SWITCH that makes other lines
    slower.
    """

    TIME = "time"
    MEMORY = "memory"
    SWITCH = "switch"


class Rewrite(ABC):
    """One pattern. `numerics` is what the change does to the numbers where a site says nothing else."""

    id: ClassVar[str]
    numerics: ClassVar[Numerics]
    cost: ClassVar[Cost] = Cost.TIME

    @abstractmethod
    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        """Where the pattern is; never where it is not sure."""

    @abstractmethod
    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        """The change, in the user's own names and style; () where none is mechanical."""
