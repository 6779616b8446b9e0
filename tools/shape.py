"""Prints the shape of the code and fails where a file, a function or the command line outgrows its maximum.

    python tools/shape.py [ROOT]

Maxima are enforced (exit code 1, a line for each breach). Medians, 95th percentiles and the ratio of test to
source lines are aims: they are printed, and marked where they are missed. A file that holds nothing but a
docstring marks a package; it is left out of the file figures, because a dozen of them would hide how long the
others are.
"""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

PACKAGES = ("hotlap", "hotlap_recipes")
RECIPE_TESTS = ("hotlap_recipes", "recipes")  # folders of tests/ that belong to the second package
TOOL_TESTS = "tools"  # folder of tests/ that belongs to neither

FILE_MAX, FILE_MEDIAN, FILE_P95 = 500, 150, 400
FUNCTION_MAX, FUNCTION_MEDIAN, FUNCTION_P95 = 60, 8, 33
KNOB_MAX = 180
RECIPE_MAX = 350
OPTIONS_MAX = 42  # of which one, --export, serves four commands, and --peak-flops says what no device tells
RATIO = (1.0, 1.5)
UNITS = ("knobs", "diagnose.rules", "rewrites", "data.formats", "report.renderers", "integrations")
SMALL = 60  # lines, below which a file that one other imports belongs into that one
REPEATED = 6  # equal lines of code, from which on two files repeat each other
LEAST_DIFFERENT = 4  # of those lines: else it is a list of equal entries
BESIDE_MAX, SMALL_MAX, TWICE_MAX, TYPED_MAX, PAIRS_MAX = 260, 10, 5, 0, 10  # what is over one may not grow
# Lower these as the figures fall, never raise them.
BESIDE_NOW, SMALL_NOW, TWICE_NOW, TYPED_NOW, PAIRS_NOW = 275, 2, 2, 0, 10

Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One source file, parsed. `shown` is its path as a reader of the repository types it."""

    name: str
    shown: str
    lines: int
    tree: ast.Module
    is_package: bool
    code: tuple[str, ...] = ()  # its lines without imports, comments, blank lines and lone brackets

    @property
    def only_docstring(self) -> bool:
        return all(
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in self.tree.body
        )


@dataclass(frozen=True)
class Function:
    """One `def`, nested ones and methods included. Decorators are not counted as its lines."""

    module: Module
    name: str
    line: int
    lines: int
    annotated: bool


def main(arguments: Sequence[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    try:
        report, breaches = survey(root)
    except (FileNotFoundError, SyntaxError) as error:
        print(f"the shape cannot be measured: {error}.", file=sys.stderr)
        return 2
    print("\n".join(report))
    if breaches:
        print("\nover the maximum:")
        print("\n".join(f"  {breach}" for breach in breaches))
    return 1 if breaches else 0


def survey(root: Path) -> tuple[list[str], list[str]]:
    """The lines to print and the breaches of the maxima."""
    packages = {name: read_package(root, name) for name in PACKAGES}
    modules = [module for package in packages.values() for module in package]
    circles = cycles(import_graph(modules))
    looped = {name for circle in circles for name in circle}
    report: list[str] = []
    breaches: list[str] = []
    for name, package in packages.items():
        functions = [function for module in package for function in functions_of(module)]
        report += _describe(name, package, functions, test_lines(root, name), looped)
        breaches += _too_long(package, functions) + _unannotated(functions)
    repeated = HouseFigure("pairs that repeat", pairs_that_repeat(modules), PAIRS_MAX, PAIRS_NOW)
    for figure in [*house(packages[PACKAGES[0]]), repeated]:
        report.append(figure.shown)
        breaches += figure.breaches
    options, uncounted = cli_options(packages["hotlap"])
    report.append(f"CLI options: {len(options)} of at most {OPTIONS_MAX}")
    if len(options) > OPTIONS_MAX:
        breaches.append(f"src/hotlap/cli: {len(options)} options over all commands, at most {OPTIONS_MAX}")
    breaches += uncounted + [f"{', '.join(circle)}: on an import cycle, none may be" for circle in circles]
    return report, breaches


def read_package(root: Path, package: str) -> list[Module]:
    folder = root / "src" / package
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    return [_read_module(root, path) for path in sorted(folder.rglob("*.py"))]


def _read_module(root: Path, path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    parts = path.relative_to(root / "src").with_suffix("").parts
    is_package = parts[-1] == "__init__"
    tree = ast.parse(text, filename=str(path))
    return Module(
        name=".".join(parts[:-1] if is_package else parts),
        shown=path.relative_to(root).as_posix(),
        lines=len(text.splitlines()),
        tree=tree,
        is_package=is_package,
        code=tuple(_code_lines(text, tree)),
    )


def _code_lines(text: str, tree: ast.Module) -> Iterator[str]:
    imported = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if number not in imported and not bare.startswith("#") and bare.strip("()[]{},:"):
            yield bare


def test_lines(root: Path, package: str) -> int:
    """Lines of the tests that belong to a package; the tests of tools/ belong to none."""
    folder = root / "tests"
    count = 0
    for path in folder.rglob("*.py"):
        top = path.relative_to(folder).parts[0]
        owner = PACKAGES[1] if top in RECIPE_TESTS else PACKAGES[0]
        if owner == package and top != TOOL_TESTS:
            count += len(path.read_text(encoding="utf-8").splitlines())
    return count


def functions_of(module: Module) -> list[Function]:
    methods = {
        id(child)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
        for child in node.body
        if isinstance(child, Definition) and not _is_static(child)
    }
    return [
        Function(
            module,
            node.name,
            node.lineno,
            (node.end_lineno or node.lineno) - node.lineno + 1,
            _is_annotated(node, is_method=id(node) in methods),
        )
        for node in ast.walk(module.tree)
        if isinstance(node, Definition)
    ]


def _is_static(node: Definition) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in node.decorator_list)


def _is_annotated(node: Definition, is_method: bool) -> bool:
    named = [*node.args.posonlyargs, *node.args.args]
    if is_method:
        named = named[1:]  # self, cls
    named += node.args.kwonlyargs
    named += [each for each in (node.args.vararg, node.args.kwarg) if each]
    return node.returns is not None and all(each.annotation for each in named)


@dataclass(frozen=True)
class HouseFigure:
    """One count over all files; `limit` is the aim, or what the code has come down to so far."""

    what: str
    found: Sequence[str]
    aim: int
    now: int

    @property
    def limit(self) -> int:
        return max(self.aim, self.now)

    @property
    def shown(self) -> str:
        word = "over" if len(self.found) > self.aim else "of"
        return f"  {self.what:<22} {len(self.found)} ({word} {self.aim})"

    @property
    def breaches(self) -> list[str]:
        if len(self.found) <= self.limit:
            return []
        return [f"{self.what}: {len(self.found)}, at most {self.limit}: {', '.join(self.found)}"]


def house(modules: Sequence[Module]) -> list[HouseFigure]:
    """How easily a reader finds a thing: files, files with one importer, names that stand for several things."""
    units = tuple(f"{PACKAGES[0]}.{folder}." for folder in UNITS)
    beside = [each for each in modules if not each.name.startswith(units) and not each.only_docstring]
    names = [each.name for each in beside]
    return [
        HouseFigure("files beside units", names, BESIDE_MAX, BESIDE_NOW),
        HouseFigure("small, imported once", small_and_imported_once(modules, beside), SMALL_MAX, SMALL_NOW),
        HouseFigure("class names twice", class_names_twice(modules), TWICE_MAX, TWICE_NOW),
        HouseFigure("cycles of types", typed_cycles(modules), TYPED_MAX, TYPED_NOW),
    ]


def small_and_imported_once(modules: Sequence[Module], beside: Sequence[Module]) -> list[str]:
    """Modules of few lines that are imported by exactly one other, at import or later."""
    known = {module.name for module in modules}
    importers: dict[str, set[str]] = {name: set() for name in known}
    for module in modules:
        for node in _runtime_imports(module.tree.body):
            for target in _targets(node, module, known):
                importers.get(target, set()).add(module.name)
    return [
        each.name
        for each in beside
        if each.lines < SMALL and not each.is_package and len(importers[each.name]) == 1
    ]


def class_names_twice(modules: Sequence[Module]) -> list[str]:
    """Public class names that more than one module defines."""
    places: dict[str, int] = {}
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name] = places.get(node.name, 0) + 1
    return sorted(name for name, count in places.items() if count > 1)


def pairs_that_repeat(modules: Sequence[Module]) -> list[str]:
    """Pairs of files that share a run of equal lines."""
    places: dict[tuple[str, ...], set[str]] = {}
    for module in modules:
        for at in range(len(module.code) - REPEATED + 1):
            run = module.code[at : at + REPEATED]
            if len(set(run)) >= LEAST_DIFFERENT:
                places.setdefault(run, set()).add(module.shown)
    pairs = {pair for files in places.values() for pair in combinations(sorted(files), 2)}
    return [f"{one} ~ {other}" for one, other in sorted(pairs)]


def typed_cycles(modules: Sequence[Module]) -> list[str]:
    """Modules on a circle of imports that only a type checker walks: they are one idea in several files."""
    known = {module.name for module in modules}
    graph = {
        module.name: {
            target
            for node in _at_module_level(module.tree.body)
            for target in _targets(node, module, known)
            if target in known
        }
        for module in modules
    }
    executed = {name for circle in cycles(import_graph(modules)) for name in circle}  # a breach of its own
    return [name for circle in cycles(graph) for name in circle if name not in executed]


def _at_module_level(body: Sequence[ast.AST]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports outside of functions, those of `if TYPE_CHECKING:` too."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not isinstance(node, Definition):
            yield from _at_module_level(list(ast.iter_child_nodes(node)))


def _runtime_imports(body: Sequence[ast.AST]) -> Iterator[ast.Import | ast.ImportFrom]:
    """All imports but those of `if TYPE_CHECKING:`."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and _is_type_checking(node.test):
            yield from _runtime_imports(node.orelse)
        else:
            yield from _runtime_imports(list(ast.iter_child_nodes(node)))


def import_graph(modules: Sequence[Module]) -> dict[str, set[str]]:
    """Which of these modules each one imports while it is itself being imported."""
    known = {module.name for module in modules}
    return {
        module.name: {
            target
            for node in _executed_on_import(module.tree.body)
            for target in _targets(node, module, known)
            if target in known
        }
        for module in modules
    }


def _executed_on_import(body: Sequence[ast.AST]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports outside of functions and of `if TYPE_CHECKING:`; these alone can close a cycle."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and _is_type_checking(node.test):
            yield from _executed_on_import(node.orelse)
        elif not isinstance(node, Definition):
            yield from _executed_on_import(list(ast.iter_child_nodes(node)))


def _is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
    return name == "TYPE_CHECKING"


def _targets(node: ast.Import | ast.ImportFrom, module: Module, known: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = node.module or ""
    if node.level:
        parents = module.name.split(".")
        kept = len(parents) - node.level + (1 if module.is_package else 0)
        base = ".".join(parents[:kept] + ([base] if base else []))
    for alias in node.names:
        submodule = f"{base}.{alias.name}"
        yield submodule if submodule in known else base


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import each other in a circle (strongly connected components)."""
    reachable = {name: _reachable(graph, name) for name in graph}
    groups: list[list[str]] = []
    seen: set[str] = set()
    for name in sorted(graph):
        if name in seen or name not in reachable[name]:
            continue
        group = sorted(other for other in reachable[name] if name in reachable[other])
        seen.update(group)
        groups.append(group)
    return groups


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    open_ends = list(graph[start])
    while open_ends:
        name = open_ends.pop()
        if name not in found:
            found.add(name)
            open_ends += graph[name]
    return found


def cli_options(modules: Sequence[Module]) -> tuple[set[tuple[str, str]], list[str]]:
    """Every (file, option) that a command declares, and the declarations that cannot be counted.

    A file is a command, so an option declared in a shared file counts once however many commands take it. An
    option whose name is computed would escape the count: it is a breach of its own.
    """
    options: set[tuple[str, str]] = set()
    uncounted: list[str] = []
    for module in modules:
        if not f"{module.name}.".startswith(f"{PACKAGES[0]}.cli."):
            continue
        for call in _add_argument_calls(module):
            names = [each.value for each in call.args if isinstance(each, ast.Constant)]
            long = [str(name) for name in names if str(name).startswith("--")]
            if long:
                options.add((module.shown, long[0]))
            elif len(names) < len(call.args):
                uncounted.append(
                    f"{module.shown}:{call.lineno}: the name of an option must be a literal, to be counted"
                )
    return options, uncounted


def _add_argument_calls(module: Module) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "add_argument"
    ]


def _too_long(modules: Sequence[Module], functions: Sequence[Function]) -> list[str]:
    breaches = []
    for module in modules:
        most, kind = _file_maximum(module)
        if module.lines > most:
            breaches.append(f"{module.shown}: {module.lines} lines, at most {most} in a {kind}")
    for function in functions:
        if function.lines > FUNCTION_MAX:
            breaches.append(
                f"{_place(function)}: {function.lines} lines, at most {FUNCTION_MAX} in a function"
            )
    return breaches


def _file_maximum(module: Module) -> tuple[int, str]:
    parts = module.name.split(".")
    if parts[:2] == ["hotlap", "knobs"] and not module.is_package:
        return KNOB_MAX, "knob"
    if parts[0] == "hotlap_recipes" and parts[-1] in ("train", "model"):
        return RECIPE_MAX, f"recipe's {parts[-1]}.py"
    return FILE_MAX, "file"


def _unannotated(functions: Sequence[Function]) -> list[str]:
    return [f"{_place(each)}: not fully annotated" for each in functions if not each.annotated]


def _place(function: Function) -> str:
    return f"{function.module.shown}:{function.line} {function.name}"


def _describe(
    name: str, modules: Sequence[Module], functions: Sequence[Function], tests: int, looped: set[str]
) -> list[str]:
    files = [module.lines for module in modules if not module.only_docstring]
    source = sum(module.lines for module in modules)
    annotated = sum(function.annotated for function in functions)
    share = f"{annotated / len(functions):.0%}" if functions else "no functions"
    return [
        f"{name}: {len(files)} files, {source} lines, {len(functions)} functions",
        _spread("file lines", files, (FILE_MEDIAN, FILE_P95, FILE_MAX)),
        _spread(
            "function lines",
            [each.lines for each in functions],
            (FUNCTION_MEDIAN, FUNCTION_P95, FUNCTION_MAX),
        ),
        _ratio(tests, source),
        f"  {'annotated':<18} {share}",
        f"  {'on a cycle':<18} {sum(module.name in looped for module in modules)} modules",
    ]


def _spread(what: str, counts: Sequence[int], aims: tuple[int, int, int]) -> str:
    if not counts:
        return f"  {what:<18} none"
    figures = (median(counts), percentile(counts, 95), max(counts))
    shown = [
        f"{label} {figure:g} ({'over' if figure > aim else 'of'} {aim})"
        for label, figure, aim in zip(("median", "p95", "max"), figures, aims, strict=True)
    ]
    return f"  {what:<18} {'   '.join(shown)}"


def percentile(counts: Sequence[int], percent: int) -> int:
    """The smallest count that at least `percent` of them do not exceed (nearest rank)."""
    return sorted(counts)[math.ceil(len(counts) * percent / 100) - 1]


def _ratio(tests: int, source: int) -> str:
    low, high = RATIO
    if not source:
        return f"  {'test/source lines':<18} no source"
    ratio = tests / source
    word = "under" if ratio < low else "over" if ratio > high else "within"
    return f"  {'test/source lines':<18} {ratio:.2f} ({word} {low} to {high})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
