"""From the words after `hotlap profile` or `hotlap run` to a Job: a script, `-m module`, or any launcher after `--`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from hotlap.errors import UsageError
from hotlap.facts.job import Job, masked
from hotlap.host.interpreter import is_python, job_python

_ISOLATING = "IES"  # flags of python that hide PYTHONPATH or sitecustomize
_FLAGS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_ENDS_FLAGS = "cm"  # what follows is the program's own
_TAKES_REST = "WX"  # the rest of the word is the flag's value


def to_job(words: Sequence[str], name: str | None = None, command: str = "profile") -> Job:
    """The job that the words mean; a script or module runs with `job_python()`. `command` is for the remedies."""
    typed = f"hotlap {command}"
    if not words:
        raise UsageError("there is no command to run.", f"{typed} train.py --epochs 1")
    if words[0] == "--":
        argv = tuple(words[1:])
        if not argv:
            raise UsageError(
                "there is no command after '--'.", f"{typed} -- torchrun --nproc_per_node 2 train.py"
            )
    elif words[0] == "-m":
        if len(words) < 2:
            raise UsageError("-m needs the name of a module.", f"{typed} -m package.train --epochs 1")
        argv = (job_python(), *words)
    else:
        argv = (job_python(), _script(words[0], typed), *words[1:])
    _refuse_isolated(argv)
    return Job(argv=argv, cwd=str(Path.cwd()), name=name or _name_of(argv))


def _script(word: str, typed: str) -> str:
    path = Path(word)
    if path.is_file() and (path.suffix in (".py", ".pyc", ".pyz", ".zip") or _looks_like_python(path)):
        return word
    if path.is_dir() and (path / "__main__.py").is_file():
        return word
    launcher = f"put a launcher after --: {typed} -- {masked([word])[0]} ..."
    if path.exists():
        raise UsageError(f"'{word}' is not a Python script.", launcher)
    raise UsageError(
        f"there is no script '{masked([word])[0]}'.", _nearest(path) if path.suffix == ".py" else launcher
    )


def _nearest(missing: Path) -> str:
    beside = sorted(path.name for path in missing.parent.glob("*.py"))
    near = difflib.get_close_matches(missing.name, beside, n=1)
    if near:
        return f"did you mean '{missing.with_name(near[0])}'?"
    return f"check the path; beside it are: {', '.join(beside[:5])}" if beside else "check the path"


def _looks_like_python(path: Path) -> bool:
    """By its first line; a file without one may be Python if it is text and has no other name of its own."""
    with path.open("rb") as file:
        first = file.readline(200)
    if first.startswith(b"#!"):
        return b"python" in first
    return path.suffix == "" and b"\0" not in first


def _refuse_isolated(argv: Sequence[str]) -> None:
    """`python -I`, `-E` and `-S` keep the probe out; the job would run, but unseen."""
    python = next((at for at, word in enumerate(argv) if is_python(word) or word.endswith(".py")), len(argv))
    flags = iter(argv[python + 1 :] if python < len(argv) and is_python(argv[python]) else ())
    for word in flags:
        if word in _FLAGS_WITH_VALUE:
            next(flags, None)
        elif not word.startswith("-") or word == "-":
            return
        elif not word.startswith("--"):
            hidden = next((flag for flag in word[1:] if flag in _ISOLATING + _TAKES_REST + _ENDS_FLAGS), "")
            if hidden and hidden in _ENDS_FLAGS:
                return
            if hidden and hidden in _ISOLATING:
                raise UsageError(
                    f"python -{hidden} ignores the environment that hotlap attaches by.",
                    f"leave -{hidden} away",
                )


def script_of(argv: Sequence[str]) -> str:
    """The word that says what is trained: a script, a module, or else the command itself."""
    words = list(argv[1:] if is_python(argv[0]) else argv)
    script = next((word for word in words if word.endswith(".py")), None)
    if script is None and "-m" in words[:-1]:
        return words[words.index("-m") + 1]
    return script or next((word for word in words if not word.startswith("-")), "job")


def _name_of(argv: Sequence[str]) -> str:
    script = script_of(argv)
    is_module = "-m" in argv and not script.endswith(".py")
    return script.rpartition(".")[2] if is_module else Path(script).stem
