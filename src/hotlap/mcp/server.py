"""The protocol: JSON-RPC 2.0, a message a line, requests on standard input and answers on standard output.

https://modelcontextprotocol.io/specification. Calls run beside each other, so that a ping is answered and a call can be
cancelled while another one measures.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import IO, Any

from hotlap.mcp.tools import TOOLS, Call

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
