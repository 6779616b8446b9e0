"""Hands a parcel to the tools that the user named.

Each in a process of its own: what hangs, prints or crashes there harms nothing.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pkgutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hotlap.discover import pick, unit
from hotlap.errors import UsageError
from hotlap.export import tools
from hotlap.facts import codec
from hotlap.ports.exporter import Exporter, Parcel

PATIENCE_S = 120.0
"""Importing a tracker takes up to ten seconds, uploading a report of some MiB over a slow line a minute."""
ANSWER = "hotlap-export: "  # begins the line of the child's output that says how it went
_SOURCE = Path(__file__).parents[2]


@dataclass(frozen=True)
class Target:
    """A tool, and where in it: `where` is the tool's own affair, empty for its default."""

    tool: str
    where: str = ""


@dataclass(frozen=True)
class Sent:
    """How one export went: `at` says where to look, `fault` what went wrong."""

    target: Target
    at: str = ""
    fault: str = ""


def read_targets(text: str | None) -> tuple[Target, ...]:
    """Of `--export`; what is unknown or not installed is refused before a job runs for it."""
    words = [word.strip() for word in text.split(",")] if text else []
    parts = [word.partition("=") for word in words]
    targets = tuple(Target(pick("export", tool, names()), where) for tool, _, where in parts)
    for target in targets:
        exporter = exporter_of(target.tool)
        missing = [module for module in exporter.needs if not _is_there(module)]
        if missing:
            raise UsageError(
                f"--export {target.tool} needs {missing[0].partition('.')[0]}, which is not installed here.",
                f"pip install 'hotlap[{exporter.extra}]'",
            )
    return targets


def names() -> list[str]:
    return [info.name for info in pkgutil.iter_modules(tools.__path__)]


def exporter_of(name: str) -> Exporter:
    return unit(tools, Exporter, name)  # type: ignore[type-abstract]


def send(parcel: Parcel, targets: Sequence[Target], say: Callable[[str], None]) -> list[Sent]:
    """To all at once; each answer is reported, and none raises."""
    if not targets:
        return []
    body = json.dumps(codec.to_plain(parcel))
    with ThreadPoolExecutor(len(targets)) as pool:
        sent = list(pool.map(lambda target: _send(body, target), targets))
    for each in sent:
        if each.fault:
            again = f"hotlap report {parcel.folder} --export {each.target.tool}"
            say(f"not exported to {each.target.tool}: {each.fault}\n  -> the run is kept; try again: {again}")
        else:
            say(f"exported to {each.target.tool}: {each.at}")
    return sent


def _send(body: str, target: Target) -> Sent:
    paths = [str(_SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONIOENCODING": "utf-8"}
    try:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "hotlap.export", target.tool, target.where],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # with what it starts: wandb has a service
            encoding="utf-8",
            errors="replace",
        )
    except OSError as fault:
        return Sent(target, fault=f"{fault.strerror or fault}.")
    try:
        output, _ = child.communicate(body, PATIENCE_S)
    except subprocess.TimeoutExpired:
        return Sent(target, fault=f"no answer in {PATIENCE_S:.0f} s.")
    finally:
        _end(child)
    return _answer(output, target, child.returncode)


def _answer(output: str, target: Target, code: int) -> Sent:
    lines = output.splitlines()
    answers = [line.removeprefix(ANSWER) for line in lines if line.startswith(ANSWER)]
    if not answers:
        last = next((line for line in reversed(lines) if line.strip()), "")
        return Sent(target, fault=f"its process ended with exit code {code}. {last}".strip())
    at, fault = json.loads(answers[-1])
    return Sent(target, at, fault)


def _end(child: subprocess.Popen[str]) -> None:
    """With all that it left running."""
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    child.wait()
    for pipe in filter(None, (child.stdin, child.stdout)):
        pipe.close()


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False
