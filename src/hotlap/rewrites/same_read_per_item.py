"""A file that is read, parsed or listed for every item, and is the same for all of them.

What it is
    What `open`, `json.load`, `np.load`, `pd.read_csv`, `glob` or `os.listdir` is given does not depend on the index:
    each item reads the same again.
Before
    def __getitem__(self, index):
        labels = json.load(open(self.path))
After
    def __getitem__(self, index):
        if not hasattr(self, "_labels"):
            self._labels = json.load(open(self.path))
        labels = self._labels
When it is the same
    Where nothing writes the file while the script trains. What the item changes in place is not recognised.
When it is not
    Where others change what was read in place. It is advice where an open file or an archive would be kept: workers
    must not share one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import (
    calls,
    changes,
    indent_of,
    keep,
    kept_name,
    makes_items,
    names_in,
    own_name,
    settled,
    starts_its_line,
    varying,
)
from hotlap.source.values import full_name

_OPENS = ("open", "h5py.File", "os.scandir", "zipfile.ZipFile", "tarfile.open")
_PARSES = (
    "json.load", "json.loads", "yaml.safe_load", "yaml.load", "pickle.load", "numpy.load", "numpy.loadtxt",
    "torch.load", "pandas.read_csv", "pandas.read_parquet", "pandas.read_json", "glob.glob", "os.listdir",
)  # fmt: skip
_WHOLE = ("list", "dict", "numpy.ndarray", "torch.Tensor", "pandas.core.frame.DataFrame", "pandas.DataFrame")
"""What is read as a whole, and holds no open file."""


class SameReadPerItem(Rewrite):
    id = "same-read-per-item"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        if not makes_items(function):
            return
        moving, reads = varying(function), [*calls(function, *_OPENS, *_PARSES)]
        for call in reads:
            inside = function.parents.get(call)
            while inside is not None and not isinstance(inside, ast.stmt) and inside not in reads:
                inside = function.parents.get(inside)
            if not call.args or inside in reads or _is_around(function, call):
                continue
            block = _block(function, call)
            if block is None and not names_in(call) & moving:
                kept = (
                    _target(function, call, seen) and settled(function, call) and not _draws(function, call)
                )
                yield Site(call, {"call": function.text(call.func)}, advice=not kept)
            elif block is not None and not names_in(block.items[0].context_expr) & moving:
                fits = _target(function, call, seen) and settled(function, block)
                last = block.end_lineno or block.lineno
                yield Site(
                    call, {"call": function.text(call.func)}, lines=(block.lineno, last), advice=not fits
                )

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        call = site.node
        assert isinstance(call, ast.Call)
        if site.advice:
            return ()
        name, own = kept_name(function, call), own_name(function)
        block = _block(function, call)
        if block is None:
            edit = keep(function, call, function.text(call), name)
            return (edit, function.replace(call, f"{own}.{name}")) if edit is not None else ()
        statement = block.body[0]
        assert isinstance(statement, ast.Assign)
        indent = indent_of(function, block)
        inner = "\t" if indent.endswith("\t") else "    "
        opened = function.source[function.span(block)[0] : function.span(statement)[0]].decode().rstrip()
        target, read = function.text(statement.targets[0]), function.text(call)
        lines = (
            f'if not hasattr({own}, "{name}"):',
            f"{inner}{opened}",
            f"{inner}{inner}{own}.{name} = {read}",
            f"{target} = {own}.{name}",
        )
        return (function.replace(block, f"\n{indent}".join(lines)),)


def _target(function: Function, call: ast.Call, seen: Seen) -> bool:
    """Whether it is assigned to a name that was seen to be read as a whole, and that the function does not change."""
    parent = function.parents.get(call)
    if not (own_name(function) and _plain(function, call)):
        return False
    match parent:
        case ast.Assign(targets=[ast.Name(id=name) as target]):
            value = seen.value(target)
        case ast.Subscript(ctx=ast.Load()) | ast.Call(func=ast.Name(id="sorted" | "len")):
            return full_name(function.module, call.func) in ("os.listdir", "glob.glob")
        case _:
            return False
    own = _block(function, call) or parent
    body: list[ast.stmt] = getattr(function.node, "body", [])
    kept = own in body and not any(changes(each, name) for each in body if each is not own)
    return value is not None and value.is_a(*_WHOLE) and kept


def _plain(function: Function, call: ast.Call) -> bool:
    block = _block(function, call)
    statement = block if block is not None else function.statement(call)
    return starts_its_line(function, statement) and not function.text(statement).startswith("elif")


def _block(function: Function, call: ast.Call) -> ast.With | None:
    """`with open(...) as file:` around `name = json.load(file)`, and nothing else in it."""
    statement = function.statement(call)
    parent = function.parents.get(statement)
    match parent:
        case ast.With(
            items=[ast.withitem(context_expr=ast.Call() as opened, optional_vars=ast.Name(id=file))],
            body=[ast.Assign(targets=[ast.Name()], value=read)],
        ):
            known = full_name(function.module, opened.func) == "open"
            return parent if known and read is call and file in names_in(call) else None
    return None


def _is_around(function: Function, call: ast.Call) -> bool:
    """Whether it opens what a `with` block parses, which is looked at there."""
    item = function.parents.get(call)
    outer = function.parents.get(item) if isinstance(item, ast.withitem) else None
    inner = outer.body[0] if isinstance(outer, ast.With) and len(outer.body) == 1 else None
    read = inner.value if isinstance(inner, ast.Assign) else None
    parses = isinstance(read, ast.Call) and full_name(function.module, read.func) in _PARSES
    return parses and isinstance(read, ast.Call) and _block(function, read) is outer


def _draws(function: Function, call: ast.Call) -> bool:
    """Whether an argument is the result of a call: it may be another one each time."""
    inner = [each for each in ast.walk(call) if isinstance(each, ast.Call) and each is not call]
    return any(full_name(function.module, each.func) not in ("open", "os.path.join", "str") for each in inner)
