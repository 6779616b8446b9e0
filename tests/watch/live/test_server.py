"""The server gives out one view of one run: to who has the token, from this machine's own page, and nothing else."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time

import pytest

from hotlap.report.live.picture import LivePages
from hotlap.watch.live import server as live_server
from hotlap.watch.live.server import LiveServer, picture

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 64
VIEW = {
    "state": "running", "run": "runs/1", "job": {"name": "train", "shown": "python <b>train.py</b>"}, "steps": 42,
    "monitors": {"own": {"state": "<img src=x onerror=alert(1)>", "gravity": "critical"}}, "problems": [],
    "lately": {"steps": 9, "seconds": 1.0, "steps_per_s": 9.0, "stages": {"data": 0.25, "backward": 0.75}},
    "drift": {"state": "steady", "now": 9.0, "best": 9.0, "change": 0.0, "series": [[1, 8.0], [2, 9.0]]},
    "pictures": ["posterior.png"],
}  # fmt: skip


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "posterior.png").write_bytes(PNG)
    (folder / "job.json").write_text("{}")
    (tmp_path / "outside.png").write_bytes(PNG)
    return folder


@pytest.fixture
def looks():
    return []


@pytest.fixture
def server(run, looks):
    server = LiveServer(run, lambda: looks.append(1) or VIEW, LivePages())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def ask(server):
    """Asks as a client of its own making; with the token unless told otherwise."""

    def get(path="/", method="GET", token=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
        given = {"Authorization": f"Bearer {server.token if token is None else token}"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, path, skip_host="Host" in given)
        for name, value in given.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer, body

    return get


def test_the_page_the_part_and_the_facts(ask, server, looks):
    answer, page = ask("/")
    assert answer.status == 200 and b"<!doctype html>" in page and b"42" in page
    assert b"<b>train.py" not in page and b"<img src=x" not in page, "texts of others do not act"
    answer, part = ask("/view")
    assert answer.status == 200 and b"<html" not in part and b'src="/picture/posterior.png?token=' in part
    answer, facts = ask("/view.json")
    assert json.loads(facts)["steps"] == 42 and answer.headers["Content-Type"] == "application/json"
    assert len(looks) == 1, "pages that ask at the same time share a look"
    assert server.url.startswith("http://127.0.0.1:") and server.url.endswith(server.token)


def test_it_listens_on_this_machine_alone(server):
    assert server.server_address[0] == "127.0.0.1" and len(server.token) >= 40


@pytest.mark.parametrize("path", ["/", "/view", "/view.json", "/picture/posterior.png", "/nothing"])
@pytest.mark.parametrize("token", ["", "wrong", "ü", " "])
def test_nobody_without_the_token_gets_anything(ask, path, token):
    answer, body = ask(path, token=token)
    assert answer.status == 403 and b"token" in body and b"42" not in body and PNG not in body


def test_the_token_may_stand_in_the_address(ask, server):
    assert ask(f"/?token={server.token}", token="")[0].status == 200
    assert ask(f"/?token={server.token[:-1]}", token="")[0].status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:{port}"},
        {"Host": "127.0.0.1"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://127.0.0.1:{port}.evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_other_names_and_other_origins_are_refused_even_with_the_token(ask, server, headers):
    port = server.server_address[1]
    answer, body = ask("/view", **{name: value.format(port=port) for name, value in headers.items()})
    assert answer.status == 403 and b"42" not in body
    assert answer.headers["Access-Control-Allow-Origin"] is None


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_its_own_page_may_ask(ask, server, name):
    own = f"{name}:{server.server_address[1]}"
    assert ask("/view", Host=own, Origin=f"http://{own}", Sec_Fetch_Site="same-origin")[0].status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/picture/../outside.png",
        "/picture/..%2foutside.png",
        "/picture/%2e%2e/outside.png",
        "/picture/..\\outside.png",
        "/picture//etc/passwd.png",
        "/picture/link.png",
        "/picture/folder.png",
        "/picture/posterior.png%00",
        "/picture/.hidden.png",
        "/picture/job.json",
        "/job.json",
        "/../../outside.png",
        "//outside.png",
    ],
)
def test_no_other_file_can_be_named(ask, run, path):
    (run / "link.png").symlink_to(run.parent / "outside.png")
    (run / "folder.png").mkdir()
    (run / ".hidden.png").write_bytes(PNG)
    answer, body = ask(path)
    assert answer.status == 404 and PNG not in body


def test_pictures_of_the_run_are_given_out(ask, run):
    answer, body = ask("/picture/posterior.png")
    assert answer.status == 200 and body == PNG and answer.headers["Content-Type"] == "image/png"
    assert picture(run, "missing.png") is None


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_it_is_read_only(ask, method):
    answer, body = ask("/", method)
    assert answer.status == 501 and b"only GET" in body
    assert answer.headers["Access-Control-Allow-Methods"] is None


def test_head_has_no_body(ask):
    answer, body = ask("/", "HEAD")
    assert answer.status == 200 and body == b"" and int(answer.headers["Content-Length"]) > 1000


def test_headers_keep_others_out(ask):
    answer, page = ask("/")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert (
        answer.headers["Cache-Control"] == "no-store" and answer.headers["Referrer-Policy"] == "no-referrer"
    )
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert b" style=" not in page, "the policy would not let it act"


def test_a_look_that_fails_is_an_answer_too(run):
    def broken():
        raise ZeroDivisionError("secret")

    server = LiveServer(run, broken, LivePages())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
        connection.request("GET", f"/?token={server.token}")
        answer = connection.getresponse()
        assert answer.status == 500 and b"secret" not in answer.read()
        connection.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_client_that_drips_is_cut_and_starves_nobody(server, ask, monkeypatch):
    monkeypatch.setattr(live_server, "_PATIENCE_S", 1.0)
    drips = [socket.create_connection(server.server_address[:2]) for _ in range(40)]
    try:
        for _ in range(100):  # each byte comes well within the patience for one byte
            left = [each for each in drips if _still_taken(each)]
            if not left:
                break
            assert ask("/view.json")[0].status == 200
            time.sleep(0.1)
        assert not left
    finally:
        for each in drips:
            each.close()


def _still_taken(client):
    try:
        client.send(b"G")
        client.setblocking(False)
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        client.setblocking(True)
