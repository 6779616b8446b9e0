"""From the words after `hotlap profile` to a Job: a script, `-m module`, or any launcher after `--`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from hotlap.errors import UsageError
from hotlap.facts.job import Job

_ISOLATING = frozenset("IES")  # flags of python that hide PYTHONPATH or sitecustomize
_FLAGS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def to_job(words: Sequence[str], name: str | None = None) -> Job:
    """The job that the words mean; a script or module runs with this Python."""
    if not words:
        raise UsageError("there is no command to run.", "hotlap profile train.py --epochs 1")
    if words[0] == "--":
        argv = tuple(words[1:])
        if not argv:
            raise UsageError(
                "there is no command after '--'.", "hotlap profile -- torchrun --nproc_per_node 2 train.py"
            )
    elif words[0] == "-m":
        if len(words) < 2:
            raise UsageError("-m needs the name of a module.", "hotlap profile -m package.train --epochs 1")
        argv = (sys.executable, *words)
    else:
        argv = (sys.executable, _script(words[0]), *words[1:])
    _refuse_isolated(argv)
    return Job(argv=argv, cwd=str(Path.cwd()), name=name or _name_of(argv))


def _script(word: str) -> str:
    path = Path(word)
    if path.is_file() and (path.suffix in (".py", ".pyc", "") or _looks_like_python(path)):
        return word
    if path.is_dir() and (path / "__main__.py").is_file():
        return word
    if path.exists():
        raise UsageError(
            f"'{word}' is not a Python script.", f"put a launcher after --: hotlap profile -- {word} ..."
        )
    near = sorted(path.parent.glob(f"*{path.suffix or '.py'}"))[:3] if path.parent.is_dir() else []
    beside = f"; beside it are {', '.join(each.name for each in near)}" if near else ""
    remedy = (
        "check the path" if path.suffix == ".py" else f"put a launcher after --: hotlap profile -- {word} ..."
    )
    raise UsageError(f"there is no script '{word}'{beside}.", remedy)


def _looks_like_python(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(200)
    return first.startswith(b"#!") and b"python" in first


def _refuse_isolated(argv: Sequence[str]) -> None:
    """`python -I`, `-E` and `-S` keep the probe out; the job would run, but unseen."""
    if not Path(argv[0]).name.startswith("python"):
        return
    flags = iter(argv[1:])
    for word in flags:
        if word in _FLAGS_WITH_VALUE:
            next(flags, None)
        elif not word.startswith("-") or word in ("-m", "-c"):
            return
        elif not word.startswith("--") and (hidden := _ISOLATING & set(word[1:])):
            flag = sorted(hidden)[0]
            raise UsageError(
                f"python -{flag} ignores the environment that hotlap attaches by.",
                f"leave -{flag} away for the profile",
            )


def _name_of(argv: Sequence[str]) -> str:
    words = list(argv[1:]) if Path(argv[0]).name.startswith("python") else list(argv)
    if "-m" in words[:1]:
        return words[1].rpartition(".")[2] if "." in words[1] else words[1]
    script = next((word for word in words if word.endswith(".py")), words[0] if words else "job")
    return Path(script).stem
