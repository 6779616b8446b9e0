"""Patterns in the user's source, one file each. What several of them ask of a tree is here."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.ports.rewrite import Edit, Function, Seen
from hotlap.source.values import dotted, full_name, imports


def calls(function: Function, *names: str) -> Iterator[ast.Call]:
    """Calls of these functions by their full names, such as `torch.cat` or `sum`."""
    for node in function.walk():
        if isinstance(node, ast.Call) and full_name(function.module, node.func) in names:
            yield node


def only_argument(call: ast.Call) -> ast.expr | None:
    """The one plain argument; None where there are others."""
    plain = len(call.args) == 1 and not call.keywords and not isinstance(call.args[0], ast.Starred)
    return call.args[0] if plain else None


def method_calls(function: Function, *names: str) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Calls `x.name(...)`, each with its x."""
    for node in function.walk():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
            yield node, node.func.value


def names_in(node: ast.AST) -> set[str]:
    """Names that stand in a tree, read or bound."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def same(one: ast.AST, other: ast.AST) -> bool:
    """Whether two trees are written alike."""
    return ast.dump(one) == ast.dump(other)


def replaced(tree: ast.AST, function: Function, changes: dict[ast.AST, str]) -> str:
    """The text of a tree, with other texts in the place of some nodes of it; none of these is within another."""
    start, end = function.span(tree)
    pieces, position = [], start
    for node in sorted(changes, key=function.span):
        first, last = function.span(node)
        pieces += [function.source[position:first].decode(), changes[node]]
        position = last
    return "".join([*pieces, function.source[position:end].decode()])


def indent_of(function: Function, node: ast.AST) -> str:
    """What stands before a statement on its line."""
    line = function.starts[getattr(node, "lineno", 1) - 1]
    return function.source[line : function.span(node)[0]].decode()


def starts_its_line(function: Function, node: ast.AST) -> bool:
    return not indent_of(function, node).strip()


def ends_its_line(function: Function, node: ast.AST) -> bool:
    """Whether nothing but a comment follows it on its line."""
    rest = function.source[function.span(node)[1] :].split(b"\n", 1)[0].strip()
    return not rest or rest.startswith(b"#")


def line_before(function: Function, statement: ast.AST, text: str) -> Edit:
    """A line of its own before a statement."""
    start = function.starts[getattr(statement, "lineno", 1) - 1]
    return Edit(start, start, f"{indent_of(function, statement)}{text}\n")


def line_after(function: Function, statement: ast.AST, text: str) -> Edit:
    """A line of its own after the last line of a statement."""
    last = getattr(statement, "end_lineno", 1)
    inside = last < len(function.starts)
    start = function.starts[last] if inside else len(function.source)
    ahead = "" if inside and function.source[start - 1 : start] == b"\n" else "\n"
    return Edit(start, start, f"{ahead}{indent_of(function, statement)}{text}\n")


def uses(tree: ast.AST, name: str) -> int:
    """How often a name stands in a tree."""
    return sum(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))


def used_outside(function: Function, loop: ast.AST, name: str) -> bool:
    """Whether a name of a loop is read elsewhere in the function, other than where it is bound anew for that."""
    for node in ast.walk(function.node):
        if not isinstance(node, ast.Name) or node.id != name or not isinstance(node.ctx, ast.Load):
            continue
        around: ast.AST | None = node
        while around is not None and around is not loop and not _binds(around, name):
            around = function.parents.get(around)
        if around is None:
            return True
    return False


def _binds(node: ast.AST, name: str) -> bool:
    match node:
        case ast.For(target=target):
            return name in names_in(target)
        case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
            return any(name in names_in(each.target) for each in node.generators)
    return False


def local_name(function: Function, full: str) -> str:
    """How the module calls an imported one: `np` for `numpy`; empty where it is not imported at its top."""
    for node in function.module.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == full and (alias.asname or "." not in full):
                    return alias.asname or alias.name
    return ""


def makes_items(function: Function) -> bool:
    """Whether it is the method of a dataset that makes one item, or is called for each of them."""
    return isinstance(function.node, ast.FunctionDef) and function.node.name in (
        "__getitem__",
        "__getitems__",
    )


def lines_before(function: Function, statement: ast.AST, *lines: str) -> Edit:
    """Several lines before a statement; those behind a colon are one step further in."""
    start = function.starts[getattr(statement, "lineno", 1) - 1]
    indent = indent_of(function, statement)
    step = "\t" if indent.endswith("\t") else "    "
    text, deep = "", False
    for line in lines:
        text += f"{indent}{step if deep else ''}{line}\n"
        deep = deep or line.endswith(":")
    return Edit(start, start, text)


def moved_in(function: Function, statement: ast.stmt, header: str) -> tuple[Edit, ...]:
    """A statement below a header of its own; () where one of its lines is within a text of several lines."""
    indent = indent_of(function, statement)
    step = "\t" if indent.endswith("\t") else "    "
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    for node in ast.walk(statement):
        text = isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        )
        if text and getattr(node, "end_lineno", 0) != getattr(node, "lineno", 0):
            return ()
    deeper = [
        Edit(start, start, step)
        for start, end in zip(
            function.starts[first:last], [*function.starts, len(function.source)][first + 1 :], strict=False
        )
        if function.source[start:end].strip()
    ]
    start = function.starts[first - 1]
    return (Edit(start, start, f"{indent}{header}\n{step}"), *deeper)


def own_name(function: Function) -> str:
    """What a method calls its object; empty for other functions."""
    arguments = getattr(function.node, "args", None)
    within = isinstance(function.parents.get(function.node), ast.ClassDef)
    named = getattr(function.node, "decorator_list", None) == [] and arguments is not None and arguments.args
    return arguments.args[0].arg if within and named else ""  # type: ignore[union-attr]


def index_name(function: Function) -> str:
    """The argument that says which item is made."""
    arguments = getattr(function.node, "args", None)
    return arguments.args[1].arg if arguments is not None and len(arguments.args) > 1 else ""


def varying(function: Function) -> set[str]:
    """Names that depend on the item's index, as far as assignments tell, and those that loops bind."""
    node = function.node
    assert isinstance(node, ast.FunctionDef)
    found = {each.arg for each in node.args.args[1:]}
    while True:
        more = set(found)
        for each in function.walk():
            if isinstance(each, ast.Assign | ast.AugAssign | ast.AnnAssign) and each.value is not None:
                random = any(isinstance(one, ast.Call) for one in ast.walk(each.value))
                if names_in(each.value) & found or random:
                    targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                    more |= {name for target in targets for name in names_in(target)} - {"self"}
            elif isinstance(each, ast.For | ast.comprehension):
                more |= names_in(each.target)
            elif isinstance(each, ast.With):
                bound = [item.optional_vars for item in each.items if item.optional_vars]
                more |= {name for one in bound for name in names_in(one)}
        if more == found:
            return found
        found = more


def settled(function: Function, node: ast.AST) -> bool:
    """Whether attributes of the object in a tree are bound by its class's `__init__` alone, or by the class itself."""
    own = own_name(function)
    named = {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == own
    }
    for each in ast.walk(function.module):
        if isinstance(each, ast.Attribute) and not isinstance(each.ctx, ast.Load) and each.attr in named:
            scope = function.parents.get(each)
            while scope is not None and not isinstance(
                scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
            ):
                scope = function.parents.get(scope)
            if getattr(scope, "name", "") != "__init__":
                return False
    return True


def kept_name(function: Function, node: ast.AST) -> str:
    """The attribute in which the value of an expression is kept: no other one of the module has it."""
    base = _base_name(function, node)
    alike = [
        each
        for each in ast.walk(function.module)
        if isinstance(each, ast.expr) and _base_name(function, each) == base
    ]
    alike.sort(key=function.span)
    number = alike.index(node) if node in alike else 0
    name = base if not number else f"{base}_{number + 1}"
    taken = {each.attr for each in ast.walk(function.module) if isinstance(each, ast.Attribute)}
    while name in taken:
        name += "_"
    return name


def _base_name(function: Function, node: ast.AST) -> str:
    match function.parents.get(node):
        case ast.Assign(targets=[ast.Name(id=name)]):
            return f"_{name.lstrip('_')}"
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) | ast.Attribute(attr=name):
            return f"_{name.strip('_').lower()}"
        case ast.Subscript(value=ast.Attribute(attr=name) | ast.Name(id=name)):
            return f"_{name.strip('_').lower()}_rows"
    return "_kept"


def keep(function: Function, node: ast.expr, text: str, name: str) -> Edit | None:
    """Lines before the statement of an expression, which compute something once and keep it with the object."""
    own, statement = own_name(function), function.statement(node)
    plain = starts_its_line(function, statement) and not function.text(statement).startswith("elif")
    if not (own and plain):
        return None
    return lines_before(function, statement, f'if not hasattr({own}, "{name}"):', f"{own}.{name} = {text}")


def changes(tree: ast.AST, name: str) -> bool:
    """Whether what a name stands for may be changed in place, or the name be bound, in a tree."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=found, ctx=ast.Store() | ast.Del()) if found == name:
                return True
            case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
                if names_in(node.value) & {name}:
                    return True
            case ast.Call(func=ast.Attribute(attr=called, value=owner)):
                if (called in _CHANGES or _in_place(called)) and dotted(owner).partition(".")[0] == name:
                    return True
            case ast.AugAssign(target=target) if names_in(target) & {name}:
                return True
    return False


_CHANGES = frozenset({
    "append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "update", "setdefault", "popitem", "add",
    "discard", "fill", "resize",
})  # fmt: skip


def _in_place(called: str) -> bool:
    return called.endswith("_") and not called.endswith("__")


def fixed_in(function: Function, loop: ast.For | ast.While | ast.AsyncFor, node: ast.expr) -> bool:
    """Whether an expression of names and attributes is the same in each turn of a loop, as far as its text tells.

    Nothing of it is bound or changed there, and none of it is handed to a function that the text does not show.
    """
    names = names_in(node) - imports(function.module).keys()
    if any(changes(loop, name) for name in names) or not settled(function, node):
        return False
    for each in ast.walk(loop):
        if isinstance(each, ast.Call) and each is not node:
            known = full_name(function.module, each.func)
            given = {
                one.id
                for one in [*each.args, *(word.value for word in each.keywords)]
                if isinstance(one, ast.Name)
            }
            pure = known.startswith(("torch.", "numpy.", "math.")) or known in (
                "len",
                "print",
                "float",
                "int",
                "bool",
                "str",
            )
            if given & names and not pure and not _is_move(each):
                return False
    return True


def _is_move(node: ast.Call) -> bool:
    """`x.to(device)` hands out its device, and changes nothing of it."""
    return isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "cuda", "append", "backward")


def is_number(node: ast.expr, seen: Seen) -> bool:
    """Arithmetic of numbers, as far as was seen."""
    match node:
        case ast.Constant():
            return isinstance(node.value, int | float) and not isinstance(node.value, bool)
        case ast.BinOp():
            return is_number(node.left, seen) and is_number(node.right, seen)
        case ast.UnaryOp(op=ast.USub()):
            return is_number(node.operand, seen)
        case ast.Name() | ast.Attribute():
            value = seen.value(node)
            return value is not None and value.type in ("int", "float")
    return False


def free_name(function: Function, *wanted: str) -> str:
    """The first of these that the function does not use."""
    return next((each for each in wanted if each not in names_in(function.node)), "")
