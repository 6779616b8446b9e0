"""The recogniser over every function of the installed frameworks: hits to be read, and no crash.

    python bench/rewrites.py [--hits [--all]] [PACKAGE ...]

Three ways of seeing: nothing is known of any value; what is annotated is known (`x: torch.Tensor`); every plain name is
taken for a tensor of one dimension, which no run would show, so that every edit is made and compiled once.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from hotlap.ports.rewrite import Function
from hotlap.rewriting.hook import Spotted, all_rewrites, spotted
from hotlap.source.files import SourceFile, UnreadableError, compiled

PACKAGES = ("torch", "lightning", "transformers", "accelerate")
FLAT = "torch.Tensor float32 ? cpu"
ANNOTATED = {
    "Tensor": FLAT.replace(" ? ", " ?x? "),
    "torch.Tensor": FLAT.replace(" ? ", " ?x? "),
    "torch.FloatTensor": FLAT.replace(" ? ", " ?x? "),
    "torch.LongTensor": "torch.Tensor int64 ?x? cpu",
    "np.ndarray": "numpy.ndarray float64 ?x?",
    "nn.Module": "torch.nn.modules.module.Module",
    "torch.nn.Module": "torch.nn.modules.module.Module",
    "Module": "torch.nn.modules.module.Module",
}


def main(words: list[str]) -> int:
    names = [word for word in words if not word.startswith("--")] or list(PACKAGES)
    print(f"{len(all_rewrites())} patterns")
    faults = 0
    for name in names:
        counts: dict[str, Counter[str]] = {"nothing": Counter(), "annotated": Counter(), "tensors": Counter()}
        began, functions, files, crashes = time.perf_counter(), 0, 0, []
        for source in sources(name):
            files += 1
            for function in source.functions:
                functions += 1
                for way, values in ways(function).items():
                    try:
                        found = spotted(function, values)
                        for each in found if way == "tensors" else ():
                            compiled(source.text, each.edits, str(source.path))
                    except Exception as fault:  # the point of this bench
                        crashes.append(f"{source.path}:{function.first_line} {way}: {fault!r}")
                        continue
                    counts[way].update(each.pattern.id for each in found)
                    if "--hits" in words and (way != "tensors" or "--all" in words):
                        print(
                            "\n".join(shown(each, source, way) for each in found), end="\n" if found else ""
                        )
        seconds = time.perf_counter() - began
        print(f"{name}: {functions} functions in {files} files, {seconds:.0f} s, {len(crashes)} crashes")
        for way, each in counts.items():
            told = ", ".join(f"{key} {count}" for key, count in each.most_common()) or "none"
            print(f"  {way:<10} {each.total()} hits: {told}")
        print("".join(f"  CRASH {line}\n" for line in crashes), end="")
        faults += len(crashes)
    return 1 if faults else 0


def sources(package: str) -> Iterator[SourceFile]:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        print(f"{package} is not installed", file=sys.stderr)
        return
    for path in sorted(Path(spec.submodule_search_locations[0]).rglob("*.py")):
        try:
            yield SourceFile.read(path)
        except UnreadableError:
            continue


def ways(function: Function) -> dict[str, Mapping[str, str]]:
    arguments = getattr(function.node, "args", None)
    annotated = {}
    for each in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs] if arguments else ():
        text = ast.unparse(each.annotation) if each.annotation is not None else ""
        if text in ANNOTATED:
            annotated[each.arg] = ANNOTATED[text]
    every = {node.id: FLAT for node in function.walk() if isinstance(node, ast.Name)}
    return {"nothing": {}, "annotated": annotated, "tensors": {**every, "self": "train.Net torch.nn.Module"}}


def shown(each: Spotted, source: SourceFile, way: str) -> str:
    line = getattr(each.site.node, "lineno", 1)
    text = source.text.splitlines()[line - 1].decode().strip()
    return f"{way} {each.pattern.id} {source.path}:{line} {text[:90]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
