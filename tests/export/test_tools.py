"""Each export is read back by the real tool, and equals the view. Tools that are not installed are skipped."""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from hotlap.errors import UsageError
from hotlap.export import sending
from hotlap.export.sending import Target, exporter_of, names, parcel_of, read_targets, send
from hotlap.export.tools.prometheus import exposition

pytestmark = pytest.mark.runs

PAGE = "<!doctype html><title>report</title>"


@pytest.fixture
def parcel(view, tmp_path):
    folder = tmp_path / "20261118-101500-train"
    folder.mkdir()
    (folder / "report.html").write_text(PAGE)
    return parcel_of(view, folder, summary="## A summary", report=str(folder / "report.html"))


@pytest.fixture
def sent(parcel):
    """`sent("mlflow", where)`: exports as the command does, and says where to look."""

    def export(tool, where=""):
        needed = [each for each in exporter_of(tool).needs if not sending._is_there(each)]
        if needed:
            pytest.skip(f"{needed[0]} is not installed: pip install 'hotlap[{exporter_of(tool).extra}]'")
        (answer,) = send(parcel, [Target(tool, where)], lambda line: None)
        assert answer.fault == "", answer.fault
        return answer.at

    return export


def figures(parcel):
    return {each.path: each.value for each in parcel.metrics}


def test_tensorboard(sent, parcel):
    folder = sent("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(folder, {"scalars": 0, "tensors": 0})
    read.Reload()
    for path, value in figures(parcel).items():
        (event,) = read.Scalars(path)
        assert event.value == pytest.approx(value, rel=1e-6)  # TensorBoard keeps 32 bits
    for series in parcel.series:
        events = read.Scalars(series.path)
        assert [event.step for event in events] == list(series.steps)
        assert [event.value for event in events] == pytest.approx(list(series.values), rel=1e-6)
    (text,) = read.Tensors("hotlap/report")
    words = text.tensor_proto.string_val[0].decode()
    assert Path(parcel.report).as_uri() in words and parcel.tags["hotlap.verdict"] in words


def test_prometheus(sent, parcel):
    path = Path(sent("prometheus"))
    if importlib.util.find_spec("prometheus_client") is None:
        pytest.skip("prometheus_client, which reads it back, is not installed")
    from prometheus_client.parser import text_string_to_metric_families

    families = {each.name: each for each in text_string_to_metric_families(path.read_text())}
    read = {
        (each.name, frozenset(each.labels.items())): each.value
        for family in families.values()
        for each in family.samples
    }
    for metric in parcel.metrics:
        labels = frozenset({"run": parcel.name, **metric.labels}.items())
        assert read.pop((f"hotlap_{metric.name.replace('.', '_')}", labels)) == metric.value
    ((name, labels),) = read
    assert name == "hotlap_info" and dict(labels)["verdict"] == parcel.tags["hotlap.verdict"]


def test_prometheus_writes_where_a_collector_reads(parcel, tmp_path):
    where = tmp_path / "hotlap.prom"
    assert exporter_of("prometheus").send(parcel, str(where)) == str(where)
    assert where.read_text() == exposition(parcel)


def test_a_label_may_hold_any_character(parcel):
    from dataclasses import replace

    odd = replace(parcel, tags={"hotlap.command": 'say "a\\b"\nend'})
    assert 'command="say \\"a\\\\b\\"\\nend"' in exposition(odd)


@pytest.mark.filterwarnings("ignore")  # those of MLflow's own libraries, when it is read back here
def test_mlflow(sent, parcel, tmp_path, monkeypatch):
    store = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.chdir(tmp_path)
    at = sent("mlflow", store)
    from mlflow.tracking import MlflowClient

    client = MlflowClient(store)
    run = client.get_run(at.split()[1])
    assert run.info.status == "FINISHED"
    expected = {path.replace("=", "_"): value for path, value in figures(parcel).items()}
    assert {
        key: value for key, value in run.data.metrics.items() if not key.startswith("hotlap/by_step/")
    } == expected
    assert {key: run.data.tags[key] for key in parcel.tags} == dict(parcel.tags)
    history = client.get_metric_history(run.info.run_id, "hotlap/by_step/step/ms")
    walls = next(each for each in parcel.series if each.path == "hotlap/by_step/step/ms")
    assert [each.value for each in sorted(history, key=lambda each: each.step)] == list(walls.values)
    assert {each.path for each in client.list_artifacts(run.info.run_id)} == {"hotlap.md", "report.html"}


def offline_records(path):
    """Of wandb's file: LevelDB's log format, chunks in blocks of 32 KiB, after seven bytes of its own."""
    content, at, begun = path.read_bytes(), 7, b""
    assert content[:4] == b":W&B"
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:  # too short for a chunk's head
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + 7])
        chunk = content[at + 7 : at + 7 + length]
        at += 7 + length
        begun = chunk if kind in (1, 2) else begun + chunk
        if kind in (1, 4):
            yield begun


@pytest.mark.filterwarnings("ignore")
def test_wandb_offline(sent, parcel, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    sent("wandb", "speed")
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = Path(parcel.folder).glob("wandb/offline-run-*/*.wandb")
    records = [Record.FromString(data) for data in offline_records(path)]
    (run,) = (each.run for each in records if each.WhichOneof("record_type") == "run")
    assert (run.project, run.display_name) == ("speed", parcel.name)
    summary = {}
    for each in records:
        if each.WhichOneof("record_type") == "summary":
            for item in each.summary.update:
                summary["/".join([item.key, *item.nested_key]).strip("/")] = json.loads(item.value_json)
    assert {key: summary[key] for key in figures(parcel)} == figures(parcel)
    walls = next(each for each in parcel.series if each.path == "hotlap/by_step/step/ms")
    read = [
        json.loads(item.value_json)
        for each in records
        if each.WhichOneof("record_type") == "history"
        for item in each.history.item
        if "/".join([item.key, *item.nested_key]).strip("/") == "hotlap/by_step/step/ms"
    ]
    assert read == list(walls.values)
    (page,) = path.parent.rglob("*.html")
    assert page.read_text() == PAGE


@pytest.fixture
def collector():
    """A receiver of OTLP over HTTP: what it was sent, as bytes."""
    received = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/metrics", received
    server.shutdown()
    thread.join()
    server.server_close()


def test_opentelemetry(sent, parcel, collector):
    url, received = collector
    sent("otel", url)
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    (body,) = received
    request = ExportMetricsServiceRequest()
    request.ParseFromString(body)
    (resource,) = request.resource_metrics
    about = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert about["service.name"] == "hotlap" and about["hotlap.verdict"] == parcel.tags["hotlap.verdict"]
    read = {
        (metric.name, frozenset((each.key, each.value.string_value) for each in point.attributes)):
            point.as_double if point.HasField("as_double") else point.as_int
        for metric in resource.scope_metrics[0].metrics
        for point in metric.gauge.data_points
    }  # fmt: skip
    assert read == {
        (f"hotlap.{each.name}", frozenset(each.labels.items())): each.value for each in parcel.metrics
    }


def test_a_tracker_that_is_down_is_a_line(parcel, monkeypatch):
    monkeypatch.setattr(sending, "PATIENCE_S", 20.0)
    lines = []
    (answer,) = send(parcel, [Target("prometheus", "/no/such/folder/hotlap.prom")], lines.append)
    assert answer.fault and answer.at == ""
    assert lines[0].startswith("not exported to prometheus: ") and "hotlap report" in lines[0]


@pytest.mark.parametrize("tool", ["mlflow", "otel"])
def test_a_server_that_does_not_answer_is_a_line(parcel, monkeypatch, tool):
    if not all(map(sending._is_there, exporter_of(tool).needs)):
        pytest.skip(f"{tool} is not installed")
    monkeypatch.setattr(sending, "PATIENCE_S", 30.0)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
    lines = []
    send(
        parcel,
        [Target(tool, "http://127.0.0.1:9/v1/metrics" if tool == "otel" else "http://127.0.0.1:9")],
        lines.append,
    )
    assert lines[0].startswith(f"not exported to {tool}: ")


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("import time; time.sleep(60)", "no answer in 1 s."),
        ("import os; print('noise'); os._exit(7)", "its process ended with exit code 7. noise"),
        ('print(\'hotlap-export: ["here", ""]\')\nraise SystemExit(1)', ""),
    ],
)
def test_what_hangs_or_dies_is_a_line(parcel, monkeypatch, tmp_path, code, fault):
    (tmp_path / "hotlap").mkdir()
    (tmp_path / "hotlap" / "__init__.py").touch()
    (tmp_path / "hotlap" / "export.py").write_text(code)
    monkeypatch.setattr(sending, "_SOURCE", tmp_path)
    monkeypatch.setattr(sending, "PATIENCE_S", 1.0 if "sleep" in code else 30.0)
    (answer,) = send(parcel, [Target("prometheus")], lambda line: None)
    assert answer.fault == fault


def test_targets_are_read_and_refused_before_a_job_runs(monkeypatch):
    assert read_targets(None) == ()
    assert read_targets("prometheus=/tmp/a.prom, prometheus") == (
        Target("prometheus", "/tmp/a.prom"),
        Target("prometheus"),
    )
    with pytest.raises(UsageError, match="'promethus'"):
        read_targets("promethus")
    monkeypatch.setattr(sending, "_is_there", lambda module: False)
    with pytest.raises(UsageError, match="not installed") as refused:
        read_targets("mlflow")
    assert "hotlap[mlflow]" in str(refused.value)


def test_every_tool_has_its_extra_and_its_card():
    import tomllib

    from hotlap.discover import card

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for name in names():
        exporter = exporter_of(name)
        assert exporter.id == name and "Where\n" in card(exporter)
        assert not exporter.needs or exporter.extra in project["optional-dependencies"]


def test_no_tool_is_imported_until_it_is_sent_to():
    import subprocess
    import sys

    code = (
        "import sys, hotlap.cli._output, hotlap.export.sending as s; [s.exporter_of(each) for each in s.names()]\n"
        "print({'wandb', 'mlflow', 'tensorboard', 'opentelemetry'} & set(sys.modules))"
    )
    source = str(Path(sending.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": source}, capture_output=True, text=True
    )
    assert done.stdout.strip() == "set()", done.stderr
