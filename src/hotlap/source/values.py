"""What was seen of a function's values, and what follows from it for expressions of them."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from hotlap.ports.rewrite import ARRAY, TENSOR, Seen, Value

_SAME = re.compile(
    "abs|clamp|clip|clone|contiguous|copy|cpu|cuda|detach|double|exp|float|half|int|log|long|neg|relu|round|sigmoid|sqrt"
    "|tanh|to"
)
"""Methods of tensors and arrays that return one of the same shape, whatever their arguments."""
_FLAT = re.compile("flatten|ravel|reshape|view")
_OTHER = re.compile(f"{_FLAT.pattern}|permute|pow|squeeze|t|transpose|unsqueeze|softmax")
_MAKES = {"torch": TENSOR, "numpy": ARRAY}
_MADE = re.compile(
    "abs|arange|array|asarray|as_tensor|cat|clamp|clip|concat|concatenate|empty|exp|from_numpy|full|linspace|log|ones|rand"
    "|randint|randn|relu|sigmoid|softmax|sqrt|stack|tanh|tensor|where|zeros|zeros_like|ones_like"
)
_VIEWS = frozenset({"T", "data", "real"})


def merged(looks: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Of several looks, the last of each name; what had different types is left out."""
    found: dict[str, str] = {}
    unsure: set[str] = set()
    for look in looks:
        for name, text in look.items():
            known = found.setdefault(name, text)
            if Value.read(known).type != Value.read(text).type:
                unsure.add(name)
            elif known != text:
                found[name] = _alike(known, text)
    return {name: text for name, text in found.items() if name not in unsure}


def _alike(one: str, other: str) -> str:
    """Of tensors of several shapes the larger stands for all; a dtype that changes is not known."""
    first, second = Value.read(one), Value.read(other)
    if first.dtype != second.dtype or len(first.shape or ()) != len(second.shape or ()):
        return first.type
    return max(one, other, key=lambda text: (_size(Value.read(text)), text))


def _size(value: Value) -> int:
    size = 1
    for each in value.shape or ():
        size *= each
    return size


class Observed(Seen):
    """Answers from what a probe saw. `asked` are the names whose values a pattern has used."""

    def __init__(self, values: Mapping[str, str], module: ast.Module) -> None:
        self._values, self._module = values, module
        self.asked: dict[str, str] = {}

    def value(self, node: ast.expr) -> Value | None:
        name = dotted(node) or _entry(node)
        if name in self._values:
            self.asked[name] = self._values[name]
            return Value.read(self._values[name])
        return self._inferred(node)

    def _inferred(self, node: ast.expr) -> Value | None:
        match node:
            case ast.Subscript():
                return self._part(node)
            case ast.UnaryOp():
                return self.value(node.operand) if not isinstance(node.op, ast.Not) else None
            case ast.BinOp():
                return self._either(node.left, node.right)
            case ast.Compare(ops=[op]) if not isinstance(op, ast.In | ast.NotIn | ast.Is | ast.IsNot):
                found = self._either(node.left, node.comparators[0])
                return Value(found.type, ("bool", *found.rest[1:2])) if found is not None else None
            case ast.Attribute() if node.attr in _VIEWS:
                return self._array(node.value)
            case ast.Call():
                return self._called(node)
            case ast.Constant():
                return Value(type(node.value).__name__)
        return None

    def _part(self, node: ast.Subscript) -> Value | None:
        owner = self.value(node.value)
        if owner is None:
            return None
        sliced = isinstance(node.slice, ast.Slice)
        if owner.type not in (TENSOR, ARRAY):
            return owner if sliced else owner.element
        shape = owner.shape
        if shape is None or not shape:
            return Value(owner.type, owner.rest[:1])
        if len(shape) == 1 and isinstance(node.slice, ast.Compare):  # a mask leaves some of them
            return _shaped(owner, (-1,))
        number = isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int)
        if sliced or number:
            return _shaped(owner, (-1, *shape[1:]) if sliced else shape[1:])
        return Value(owner.type, owner.rest[:1])

    def _either(self, left: ast.expr, right: ast.expr) -> Value | None:
        """Of two operands: the tensor, with its shape where the other cannot change it."""
        values = self.value(left), self.value(right)
        arrays = [each for each in values if each is not None and each.type in (TENSOR, ARRAY)]
        if not arrays:
            return None
        first = next((each for each in arrays if each.type == TENSOR), arrays[0])
        if len(arrays) == 2 and arrays[0].shape == arrays[1].shape:
            return Value(first.type, ("?", *first.rest[1:2]))
        plain = any(each is not None and each.type in ("int", "float", "bool") for each in values)
        return Value(first.type, ("?", *first.rest[1:2]) if plain else ())

    def _array(self, node: ast.expr) -> Value | None:
        value = self.value(node)
        return value if value is not None and value.type in (TENSOR, ARRAY) else None

    def _called(self, node: ast.Call) -> Value | None:
        name = full_name(self._module, node.func)
        if name == "abs" and node.args:
            return self._array(node.args[0])
        package, _, last = name.rpartition(".")
        if package in _MAKES and _MADE.fullmatch(last):
            return Value(_MAKES[package])
        if not isinstance(node.func, ast.Attribute):
            return None
        owner, method = self._array(node.func.value), node.func.attr
        if owner is None:
            return None
        if _SAME.fullmatch(method):
            return Value(owner.type, ("?", *owner.rest[1:2]))
        if _FLAT.fullmatch(method) and not node.keywords and _flattens(node):
            return Value(owner.type, (owner.dtype or "?", "?"))
        if _OTHER.fullmatch(method):
            return Value(owner.type)
        return Value(ARRAY, ("?", *owner.rest[1:2])) if method == "numpy" else None


def _flattens(node: ast.Call) -> bool:
    return not node.args or ast.unparse(node.args[0]) == "-1"


def _shaped(owner: Value, shape: tuple[int, ...]) -> Value:
    text = "x".join("?" if each < 0 else str(each) for each in shape) or "scalar"
    return Value(owner.type, (owner.dtype or "?", text))


def _entry(node: ast.AST) -> str:
    """`batch['audio']`, as the probe names entries of dictionaries."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        owner = dotted(node.value)
        return f"{owner}[{node.slice.value!r}]" if owner else ""
    return ""


# What names of a module stand for, as far as its text tells: imports, builtins, and what it binds itself.


_BUILTINS = frozenset(dir(builtins))


@lru_cache(maxsize=64)
def family(module: ast.Module) -> tuple[tuple[ast.AST, ...], dict[ast.AST, ast.AST]]:
    """All nodes, outer ones before inner ones, and the parent of each: walked once for all who need them."""
    nodes: list[ast.AST] = [module]
    parents: dict[ast.AST, ast.AST] = {}
    for node in nodes:  # which grows meanwhile
        for child in ast.iter_child_nodes(node):
            parents[child] = node
            nodes.append(child)
    return tuple(nodes), parents


@lru_cache(maxsize=256)
def imports(module: ast.Module) -> dict[str, str]:
    """By local name the full one: `np` to `numpy`, `F` to `torch.nn.functional`."""
    found: dict[str, str] = {}
    for node in family(module)[0]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                found[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


@lru_cache(maxsize=256)
def bound(module: ast.Module) -> frozenset[str]:
    """Names that are assigned, defined or taken as an argument anywhere in the module. Methods and what else a class
    body binds are reached through the class alone."""
    found: set[str] = set()
    nodes = family(module)[0]
    of_classes = {each for node in nodes if isinstance(node, ast.ClassDef) for each in node.body}
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found |= set() if node in of_classes else {node.name}
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            found |= _BUILTINS  # it may bind any of them
    return frozenset(found)


def full_name(module: ast.Module, node: ast.AST) -> str:
    """`torch.cat`, `numpy.array`, `sum`; empty for what is no import and no builtin."""
    if isinstance(node, ast.Attribute):
        owner = full_name(module, node.value)
        return f"{owner}.{node.attr}" if owner and owner not in _BUILTINS else ""
    if not isinstance(node, ast.Name):
        return ""
    known = imports(module).get(node.id)
    if known is not None:
        return known if node.id not in bound(module) else ""
    return node.id if node.id in _BUILTINS and node.id not in bound(module) else ""


def dotted(node: ast.AST) -> str:
    """`self.scaler.transform` as it is written; empty where it is no chain of names."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return ""
