"""The tools that an agent may call: each is a command of hotlap, with the JSON that it writes."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONG = ("series", "trace", "gauges", "ledger")
"""Columns with a row for each step or trial: an agent reads the rest, the run folder has these."""
_LAST_LINES = 20
_COMMAND = {
    "type": "string",
    "description": "The training command as typed in a shell: `train.py --epochs 1`, `-m package.train`, or a launcher "
    "after `--`: `-- torchrun --nproc_per_node 2 train.py`",
}
_FOLDER = {"type": "string", "description": "The folder to run in (default: where the server was started)"}
_RUN = {"type": "string", "description": "A run folder, the end of its name, or `last`"}


@dataclass(frozen=True)
class Tool:
    """`words` makes hotlap's words of the arguments; `writes_json` where the command has `--json`."""

    name: str
    description: str
    properties: Mapping[str, Any]
    required: tuple[str, ...]
    words: Callable[[Mapping[str, Any]], Sequence[str]]
    read_only: bool = False
    writes_json: bool = True

    def listed(self) -> dict[str, Any]:
        """As `tools/list` has it."""
        schema: dict[str, Any] = {
            "type": "object",
            "properties": dict(self.properties),
            "required": list(self.required),
        }
        hints = {"readOnlyHint": self.read_only, "openWorldHint": False}
        schema["additionalProperties"] = False
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": schema,
            "annotations": hints,
        }

    def refusal(self, arguments: Mapping[str, Any]) -> str:
        """Why these arguments do not fit, or nothing."""
        missing = [name for name in self.required if name not in arguments]
        unknown = [name for name in arguments if name not in self.properties]
        kinds = {"string": str, "integer": int, "boolean": bool}
        wrong = [
            name
            for name, value in arguments.items()
            if name in self.properties and type(value) is not kinds[self.properties[name]["type"]]
        ]
        if missing:
            return f"{self.name} needs the argument {missing[0]}"
        if unknown:
            return f"{self.name} has no argument {unknown[0]}; it has {', '.join(self.properties)}"
        return f"{wrong[0]} must be a {self.properties[wrong[0]]['type']}" if wrong else ""


def _command_words(arguments: Mapping[str, Any], verb: str, **options: str) -> list[str]:
    given = [(option, str(arguments[name])) for name, option in options.items() if name in arguments]
    return [verb, *(word for pair in given for word in pair), *shlex.split(arguments["command"])]


def _patch_words(arguments: Mapping[str, Any]) -> list[str]:
    return ["patch", arguments["run"], *(["--apply"] if arguments.get("apply") else [])]


TOOLS = (
    Tool(
        "profile",
        "Run a PyTorch training command unmodified for some steps and find out where the time of a step goes, at which "
        "line, why, and which settings are measured to be faster on this job. Ends the job after the measured steps.",
        {
            "command": _COMMAND,
            "steps": {
                "type": "integer",
                "description": "Steady steps to measure (default 200, or after a minute)",
            },
            "experiments": {
                "type": "string",
                "description": "How long to try changes on the running job: `60s` (default), `2m`, `off`",
            },
            "folder": _FOLDER,
        },
        ("command",),
        lambda given: _command_words(given, "profile", steps="--steps", experiments="--experiments"),
    ),
    Tool(
        "tune",
        "Search for the settings that make a training command faster, prove that the same model is trained, and write "
        "plan.yaml. Takes the budget (default 5 minutes).",
        {
            "command": _COMMAND,
            "budget": {"type": "string", "description": "`5m`, `90s`, or a number of trials"},
            "allow": {
                "type": "string",
                "description": "Numerical changes to permit: `rounding`, `rounding,statistical` (default: none)",
            },
            "folder": _FOLDER,
        },
        ("command",),
        lambda given: _command_words(given, "tune", budget="--budget", allow="--allow"),
    ),
    Tool(
        "explain",
        "What a cause of a report is, how it is recognised, what to do. Without a cause: all of them.",
        {"cause": {"type": "string", "description": "As a report names it: `input-starved`"}},
        (),
        lambda given: ["explain", *([given["cause"]] if "cause" in given else [])],
        read_only=True,
    ),
    Tool(
        "diagnose",
        "The findings of a stored run, without running anything.",
        {"run": _RUN, "folder": _FOLDER},
        ("run",),
        lambda given: ["diagnose", given["run"]],
        read_only=True,
    ),
    Tool(
        "patch",
        "The changes of slow lines of the user's own source that were found or proved, as a patch for `git apply`. "
        "With `apply` the files are changed.",
        {
            "run": {"type": "string", "description": "The folder of a search or a profile, or plan.yaml"},
            "apply": {"type": "boolean", "description": "Change the files (default false)"},
            "folder": _FOLDER,
        },
        ("run",),
        _patch_words,
        writes_json=False,
    ),
)


class Call:
    """One run of a tool, that may be ended from another thread."""

    def __init__(self, tool: Tool, arguments: Mapping[str, Any], progress: Callable[[str], None]) -> None:
        self._tool = tool
        self._arguments = arguments
        self._progress = progress
        self._child: subprocess.Popen[str] | None = None
        self.ended = False

    def end(self) -> None:
        """As Ctrl-C does: what was seen so far is kept in the run folder."""
        self.ended = True
        if self._child is not None:
            with suppress(OSError):
                self._child.send_signal(signal.SIGINT)

    def result(self) -> dict[str, Any]:
        """As `tools/call` has it: the command's JSON as text, or what it printed on its errors."""
        with tempfile.TemporaryDirectory(prefix="hotlap-mcp-") as scratch:
            file = Path(scratch, "facts.json")
            words = list(self._tool.words(self._arguments))
            options = ["--json", str(file)] if self._tool.writes_json else []
            code, printed, errors = self._run([words[0], *options, *words[1:]])
            text = _without_long(file.read_text(encoding="utf-8")) if file.is_file() else printed
        told = "\n".join(errors[-_LAST_LINES:]) or f"hotlap ended with exit code {code}"
        texts = [text] if text else []
        if code or not text:  # of a job that failed there may be a profile as well
            texts.append(told)
        return {"content": [{"type": "text", "text": each} for each in texts], "isError": bool(code)}

    def _run(self, words: Sequence[str]) -> tuple[int, str, list[str]]:
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "hotlap", *words],
                cwd=self._arguments.get("folder"),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
            )
            self._child = child
            if self.ended:
                self.end()
            assert child.stderr is not None
            errors = []
            with child.stderr:
                for line in child.stderr:
                    errors.append(line.rstrip())
                    self._progress(line.rstrip())
            code = child.wait()
            printed.seek(0)
            return code, printed.read(), errors


def _without_long(text: str) -> str:
    facts = json.loads(text)
    return json.dumps({key: value for key, value in facts.items() if key not in LONG}, ensure_ascii=False)
