"""Commands as tools for coding agents: JSON-RPC 2.0 on standard input and output, a message a line.

https://modelcontextprotocol.io/specification. Calls run beside each other, so that a ping is answered and a call can be
cancelled while another one measures.
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

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


VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")  # the newest first
_NOT_JSON, _NO_REQUEST, _NO_METHOD, _WRONG_ARGUMENTS, _FAULT = -32700, -32600, -32601, -32602, -32603
_INSTRUCTIONS = (
    "hotlap finds out why a PyTorch training is slow and measures what makes it faster. Start with `profile`: findings "
    "have the share of a step, file and line; `experiments` are changes that were measured on the job with their gain. "
    "`explain` says what a cause is. `tune` combines what wins, proves that the same model is trained and writes "
    "plan.yaml; `hotlap run --plan` trains with it. `patch` shows changes of the source. Do not claim a gain that was "
    "not measured."
)


class Server:
    """Until standard input ends; calls that are under way are ended then."""

    def __init__(self, incoming: IO[str], outgoing: IO[str], version: str) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._version = version
        self._lock = threading.Lock()
        self._calls: dict[Any, Call] = {}
        self._threads: list[threading.Thread] = []
        self._lines = 0  # of progress: they must count upwards

    def serve(self) -> None:
        try:
            for line in self._incoming:
                if line.strip():
                    self._read(line)
        finally:
            for call in list(self._calls.values()):
                call.end()
            for thread in self._threads:
                thread.join()

    def _read(self, line: str) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            self._fail(None, _NOT_JSON, "this is no JSON")
            return
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            if not isinstance(message, dict) or "method" in message:
                self._fail(None, _NO_REQUEST, "this is no request")
            return  # else an answer to a request that was never made
        params = message.get("params")
        self._take(message["method"], params if isinstance(params, dict) else {}, message.get("id"))

    def _take(self, method: str, params: Mapping[str, Any], number: Any) -> None:
        if method == "notifications/cancelled":
            call = self._calls.get(params.get("requestId"))
            if call is not None:
                call.end()
        elif number is None:
            return  # another notification
        elif method == "initialize":
            self._answer(number, self._initialized(params))
        elif method == "ping":
            self._answer(number, {})
        elif method == "tools/list":
            self._answer(number, {"tools": [tool.listed() for tool in TOOLS]})
        elif method == "tools/call":
            self._call(params, number)
        else:
            self._fail(number, _NO_METHOD, f"there is no method {method}")

    def _initialized(self, params: Mapping[str, Any]) -> dict[str, Any]:
        wanted = params.get("protocolVersion")
        return {
            "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "hotlap", "version": self._version},
            "instructions": _INSTRUCTIONS,
        }

    def _call(self, params: Mapping[str, Any], number: Any) -> None:
        tool = next((each for each in TOOLS if each.name == params.get("name")), None)
        arguments = params.get("arguments") or {}
        if tool is None:
            known = ", ".join(each.name for each in TOOLS)
            self._fail(number, _WRONG_ARGUMENTS, f"there is no tool {params.get('name')}; there are {known}")
            return
        refusal = tool.refusal(arguments) if isinstance(arguments, dict) else "arguments must be an object"
        if refusal:
            self._fail(number, _WRONG_ARGUMENTS, refusal)
            return
        token = (params.get("_meta") or {}).get("progressToken")
        call = Call(tool, arguments, lambda line: self._progress(token, line))
        self._calls[number] = call
        thread = threading.Thread(target=self._finish, args=(call, number))
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()

    def _finish(self, call: Call, number: Any) -> None:
        try:
            result = call.result()
        except Exception as fault:  # a folder that is not there, arguments that no shell could read
            self._fail(number, _FAULT, f"{type(fault).__name__}: {fault}")
        else:
            if not call.ended:  # who has cancelled waits for no answer
                self._answer(number, result)
        finally:
            self._calls.pop(number, None)

    def _progress(self, token: Any, line: str) -> None:
        if token is not None and line:
            with self._lock:
                self._lines += 1
                params = {"progressToken": token, "progress": self._lines, "message": line}
            self._send({"method": "notifications/progress", "params": params})

    def _answer(self, number: Any, result: Mapping[str, Any]) -> None:
        self._send({"id": number, "result": result})

    def _fail(self, number: Any, code: int, message: str) -> None:
        self._send({"id": number, "error": {"code": code, "message": message}})

    def _send(self, message: Mapping[str, Any]) -> None:
        with self._lock:
            self._outgoing.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            self._outgoing.flush()
