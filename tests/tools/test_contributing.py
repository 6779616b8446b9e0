"""The examples of CONTRIBUTING.md are code that runs: they must fit the ports as these are today."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hotlap.discover import card
from hotlap.facts.diagnosis import Cause, Severity
from hotlap.facts.summary import StageSummary, Summary
from hotlap.facts.timeline import Stage
from hotlap.ports.integration import Integration
from hotlap.ports.knob import Knob
from hotlap.ports.renderer import Renderer
from hotlap.ports.rule import Rule

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.MULTILINE | re.DOTALL
)


@pytest.fixture
def example(monkeypatch):
    """The unit of that kind which CONTRIBUTING.md shows, made from the text of its block."""

    def make(kind: type) -> Any:
        (block,) = [each for each in BLOCKS if f"({kind.__name__}):" in each]
        module = ModuleType("contributed")
        monkeypatch.setitem(sys.modules, "contributed", module)
        exec(compile(block, "CONTRIBUTING.md", "exec"), vars(module))
        (unit,) = [
            each
            for each in vars(module).values()
            if isinstance(each, type) and each.__module__ == "contributed"
        ]
        assert issubclass(unit, kind)
        return unit()

    return make


def test_there_is_one_example_for_each_port_and_no_other_code():
    assert len(BLOCKS) == 4


def test_the_knob_changes_its_target_and_takes_it_back(example):
    knob = example(Knob)
    loader = SimpleNamespace(pin_memory=False)
    with_gpu, without = SimpleNamespace(gpus=("one",)), SimpleNamespace(gpus=())
    assert knob.settings(with_gpu, SimpleNamespace(loaders=(loader,))) == (True,)
    assert knob.settings(without, SimpleNamespace(loaders=(loader,))) == ()
    arguments = {"batch_size": 8}
    undo = knob.apply(arguments, True)
    assert arguments == {"batch_size": 8, "pin_memory": True}
    undo()
    assert arguments == {"batch_size": 8, "pin_memory": False}
    sections = re.findall(r"^(\w.*)\n    ", card(knob), flags=re.MULTILINE)
    assert sections == ["What it does", "When it helps", "What it costs", "Numerics"]


@pytest.mark.parametrize(("share", "fires"), [(0.02, False), (0.4, True)])
def test_the_rule_fires_on_its_cause_alone(example, share, fires):
    rule = example(Rule)
    summary = Summary(n=9, seconds=1.0, stages={Stage.TRANSFER: StageSummary(4.0, share, 4.0, 5.0)})
    loader = SimpleNamespace(pin_memory=False, training=True)
    finding = rule.examine(SimpleNamespace(summary=summary, timeline=SimpleNamespace(loaders=(loader,))))
    assert (finding is not None) is fires
    if finding:
        assert (finding.cause, finding.severity, finding.share) == (
            Cause.TRANSFER_EXPOSED,
            Severity.WARNING,
            0.4,
        )
        assert finding.evidence == {"transfer_ms": 4.0, "pinned": "no"}
    sections = re.findall(r"^(\w.*)\n    ", card(rule), flags=re.MULTILINE)
    assert sections == ["What it is", "How it is recognised", "What to do"]


def test_the_integration_stages_what_its_modules_hold(example):
    integration = example(Integration)
    staged: list[tuple[Any, str, Stage]] = []
    stager = SimpleNamespace(stage=lambda *point, **_: staged.append(point), note=lambda *fact: None)
    for name in integration.modules:
        module = ModuleType(name)
        module.Accelerator = SimpleNamespace()
        integration.attach(module, stager)
    assert [(name, stage) for _, name, stage in staged] == [
        ("log", Stage.LOG),
        ("save_state", Stage.CHECKPOINT),
        ("send_to_device", Stage.TRANSFER),
    ]


def test_the_renderer_draws_a_view(example):
    view = {"stages": {"data": {"ms": 1.5, "share": 0.25}, "forward": {"ms": 4.5, "share": 0.75}}}
    assert example(Renderer).render(view) == "stage,ms,share\ndata,1.5,0.25\nforward,4.5,0.75\n"


def test_the_examples_are_tidy(tmp_path):
    for number, block in enumerate(BLOCKS):
        (tmp_path / f"example_{number}.py").write_text(block)
    config = ["--config", str(ROOT / "pyproject.toml"), "--extend-ignore", "ARG002"]  # as for units in src
    ended = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", *config, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
