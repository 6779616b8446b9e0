"""`hotlap mcp`, driven by a scripted client: each message a line, as an agent sends it."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hotlap.mcp.server import LONG, TOOLS, VERSIONS, Server

pytestmark = pytest.mark.runs

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8"}
TRAIN = """
import torch
net = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
print("the script's own output")
for _ in range(200):
    optimizer.zero_grad()
    loss = net(torch.randn(16, 8)).square().mean()
    loss.backward()
    optimizer.step()
"""


def spoken(*messages):
    """The answers of a server to these messages, in this process."""
    lines = "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in messages)
    answers = io.StringIO()
    Server(io.StringIO(lines), answers, "1.2.3").serve()
    return [json.loads(line) for line in answers.getvalue().splitlines()]


def request(method, number=1, **params):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


class Agent:
    """A client of a server in a process of its own."""

    def __init__(self, folder):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hotlap", "mcp"], cwd=folder, env=ENVIRONMENT, text=True, encoding="utf-8",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.number = 0
        self.progress = []

    def send(self, method, **params):
        self.number += 1
        self.process.stdin.write(json.dumps(request(method, self.number, **params)) + "\n")
        self.process.stdin.flush()
        return self.number

    def answer(self, number):
        while (message := json.loads(self.process.stdout.readline())).get("id") != number:
            self.progress.append(message["params"]["message"])
        return message

    def call(self, name, **arguments):
        number = self.send("tools/call", name=name, arguments=arguments, _meta={"progressToken": "p"})
        return self.answer(number)["result"]

    def close(self):
        self.process.stdin.close()
        code = self.process.wait(30)
        self.process.stdout.close()
        return code


@pytest.fixture
def agent(tmp_path):
    agent = Agent(tmp_path)
    yield agent
    if agent.process.poll() is None:
        agent.close()


@pytest.mark.parametrize("version", [*VERSIONS, "1999-01-01"])
def test_the_version_is_agreed_on(version):
    (answer,) = spoken(request("initialize", protocolVersion=version, capabilities={}, clientInfo={}))
    assert answer["result"]["protocolVersion"] == (version if version in VERSIONS else VERSIONS[0])
    assert answer["result"]["serverInfo"] == {"name": "hotlap", "version": "1.2.3"}
    assert "tools" in answer["result"]["capabilities"]


def test_every_tool_is_a_command_with_a_schema():
    from hotlap.cli import build_parser

    (answer,) = spoken(request("tools/list"))
    listed = {each["name"]: each for each in answer["result"]["tools"]}
    assert listed.keys() == {"profile", "tune", "explain", "diagnose", "patch"}
    help_text = build_parser().format_help()
    for name, each in listed.items():
        assert f"    {name} " in help_text
        schema = each["inputSchema"]
        assert set(schema["required"]) <= schema["properties"].keys()
        assert all(kind["description"] for kind in schema["properties"].values())
    assert [name for name, each in listed.items() if each["annotations"]["readOnlyHint"]] == [
        "explain",
        "diagnose",
    ]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{nothing", -32700),
        ("[]", -32600),
        ('{"method": 7, "id": 1}', -32600),
        (request("resources/list"), -32601),
        (request("tools/call", name="delete"), -32602),
        (request("tools/call", name="profile"), -32602),
        (request("tools/call", name="profile", arguments={"command": 7}), -32602),
        (request("tools/call", name="profile", arguments={"command": "a.py", "steps": True}), -32602),
        (request("tools/call", name="profile", arguments={"command": "a.py", "stpes": 7}), -32602),
        (request("tools/call", name="profile", arguments=[]), None),
        (request("tools/call", name="diagnose", arguments={"run": "last", "folder": "/no/such"}), -32603),
        (request("tools/call", name="profile", arguments={"command": "train.py 'open"}), -32603),
    ],
)
def test_what_cannot_be_done_is_an_error_of_the_protocol(message, code):
    if code is None:
        message["params"]["arguments"], code = ["x"], -32602
    answers = spoken(message, request("ping", 2))
    (failed,) = [each for each in answers if "error" in each]
    assert failed["error"]["code"] == code and failed["error"]["message"]
    assert {"jsonrpc": "2.0", "id": 2, "result": {}} in answers  # and it goes on


def test_notifications_and_answers_get_no_answer():
    assert (
        spoken(
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 4, "result": {}},
        )
        == []
    )


def test_the_words_of_a_command():
    words = {each.name: each.words for each in TOOLS}
    command = {"command": "train.py --name 'two words'", "steps": 30, "experiments": "off"}
    assert words["profile"](command) == [
        "profile",
        "--steps",
        "30",
        "--experiments",
        "off",
        "train.py",
        "--name",
        "two words",
    ]
    assert words["tune"]({"command": "-- torchrun a.py"}) == ["tune", "--", "torchrun", "a.py"]
    assert words["patch"]({"run": "last", "apply": True}) == ["patch", "last", "--apply"]
    assert words["explain"]({}) == ["explain"]


def test_an_agent_profiles_and_asks_what_was_found(agent, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    agent.answer(agent.send("initialize", protocolVersion=VERSIONS[0], capabilities={}, clientInfo={}))
    result = agent.call("profile", command="train.py", steps=30, experiments="off")
    assert not result["isError"], result
    view = json.loads(result["content"][0]["text"])
    assert view["step"]["n"] >= 30 and view["stages"] and not view.keys() & set(LONG)
    assert any(line.startswith("hotlap: profiling") for line in agent.progress)
    again = json.loads(agent.call("diagnose", run="last")["content"][0]["text"])
    assert Path(again["run"]).name == Path(view["run"]).name and again["findings"] == view["findings"]
    cards = json.loads(agent.call("explain")["content"][0]["text"])["causes"]
    assert {each["cause"] for each in view["findings"]} <= {each["cause"] for each in cards}
    patched = agent.call("patch", run=view["run"])
    if view["rewrites"]:
        assert patched["content"][0]["text"].startswith("--- ")
    else:
        assert patched["isError"] and "-> " in patched["content"][0]["text"]
    assert agent.close() == 0


def test_a_command_that_fails_is_a_result_with_its_remedy(agent):
    result = agent.call("profile", command="no_such.py")
    assert result["isError"] and "-> " in result["content"][0]["text"]
    result = agent.call("explain", cause="input-starvd")
    assert result["isError"] and "input-starved" in result["content"][0]["text"]


def test_a_call_can_be_cancelled_and_others_go_on(agent, tmp_path):
    (tmp_path / "wait.py").write_text("import time\nopen('began', 'w').close()\ntime.sleep(600)\n")
    number = agent.send("tools/call", name="profile", arguments={"command": "wait.py"})
    limit = time.monotonic() + 60
    while not (tmp_path / "began").exists():
        assert time.monotonic() < limit
        time.sleep(0.1)
    assert agent.answer(agent.send("ping"))["result"] == {}
    agent.process.stdin.write(
        json.dumps({"method": "notifications/cancelled", "params": {"requestId": number}}) + "\n"
    )
    agent.process.stdin.flush()
    assert agent.close() == 0  # with the job: nothing sleeps for ten minutes


def test_the_official_client(tmp_path):
    if importlib.util.find_spec("mcp") is None:
        pytest.skip("mcp, the official client, is not installed")
    code = (
        "import asyncio, json, sys\n"
        "from mcp import ClientSession, StdioServerParameters\n"
        "from mcp.client.stdio import stdio_client\n"
        "async def main():\n"
        "    words = {'command': sys.executable, 'args': ['-m', 'hotlap', 'mcp'], 'env': json.loads(sys.argv[1])}\n"
        "    server = StdioServerParameters(**words)\n"
        "    async with stdio_client(server) as streams, ClientSession(*streams) as session:\n"
        "        await session.initialize()\n"
        "        tools = (await session.list_tools()).tools\n"
        "        answer = await session.call_tool('explain', {'cause': 'host-sync'})\n"
        "        card = json.loads(answer.content[0].text)['causes'][0]\n"
        "        print(json.dumps([[each.name for each in tools], card['cause']]))\n"
        "asyncio.run(main())\n"
    )
    variables = json.dumps({key: ENVIRONMENT[key] for key in ("PATH", "PYTHONPATH") if key in ENVIRONMENT})
    done = subprocess.run(
        [sys.executable, "-c", code, variables], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    names, cause = json.loads(done.stdout)
    assert names == [each.name for each in TOOLS] and cause == "host-sync"


def test_every_thread_is_gone_at_the_end():
    before = threading.active_count()
    spoken(request("tools/call", name="explain", arguments={}))
    assert threading.active_count() == before
