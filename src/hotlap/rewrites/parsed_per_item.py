"""A file parsed for each item in a slow format.

What it is
    PyYAML's own parser is written in Python: a file of some kilobytes takes milliseconds. Its parser in C reads the
    same. JSON, pickles and archives of NumPy are parsed again in each epoch.
Before
    labels = yaml.safe_load(file)
After
    labels = yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
When it is the same
    Always: both parsers build the same objects.
When it is not
    Messages about faults in a file are worded differently. For other formats it is advice: convert them once to arrays
    that can be mapped into memory.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import calls, makes_items, names_in, varying
from hotlap.source.values import full_name

_YAML = {"yaml.safe_load": "SafeLoader", "yaml.full_load": "FullLoader", "yaml.load": ""}
_OTHERS = (
    "json.load",
    "pickle.load",
    "numpy.load",
    "numpy.loadtxt",
    "numpy.genfromtxt",
    "pandas.read_csv",
    "torch.load",
)
_MAPPED = "mmap_mode"


class ParsedPerItem(Rewrite):
    id = "parsed-per-item"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for call in calls(function, *_YAML):
            if self._edits(function, call):
                yield Site(call, {"call": function.text(call.func)})
        if not makes_items(function):
            return
        moving = varying(function)
        for call in calls(function, *_OTHERS):
            mapped = any(each.arg == _MAPPED for each in call.keywords)
            if call.args and names_in(call) & moving and not mapped and not _is_plain_array(function, call):
                yield Site(call, {"call": function.text(call.func)}, advice=True)

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        assert isinstance(site.node, ast.Call)
        return () if site.advice else self._edits(function, site.node)

    def _edits(self, function: Function, call: ast.Call) -> tuple[Edit, ...]:
        loader = _YAML.get(full_name(function.module, call.func), "")
        module = function.text(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        words = {each.arg: ast.unparse(each.value) for each in call.keywords}
        if not loader and words.keys() == {"Loader"}:
            given = words["Loader"].rpartition(".")[2]
            loader = given if given in ("SafeLoader", "FullLoader", "Loader") else ""
            words = {}
        if not loader or not module or words or len(call.args) != 1:
            return ()
        fast = f'getattr({module}, "C{loader}", {module}.{loader})'
        return (function.replace(call, f"{module}.load({function.text(call.args[0])}, Loader={fast})"),)


def _is_plain_array(function: Function, call: ast.Call) -> bool:
    """`np.load` of a single array reads numbers and parses nothing: only what is picked by a name is an archive."""
    name = full_name(function.module, call.func)
    parent = function.parents.get(call)
    by_name = isinstance(parent, ast.Subscript) and isinstance(getattr(parent.slice, "value", None), str)
    return name == "numpy.load" and not by_name
