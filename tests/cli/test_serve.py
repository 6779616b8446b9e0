"""What `hotlap serve` and `hotlap watch` refuse, with a remedy."""

from __future__ import annotations

import socket

import pytest


@pytest.mark.parametrize(
    ("words", "message", "remedy"),
    [
        (("serve", "no-such-run"), "there is no run 'no-such-run'", "hotlap profile"),
        (("watch", "no-such-run"), "there is no run 'no-such-run'", "hotlap profile"),
        (("serve", ".", "--port", "70000"), "--port is 70000", "from 1 to 65535"),
        (("watch", ".", "--lang", "fr"), "language 'fr'", "en, zh"),
        (("watch", ".", "--json", "no/such/folder/x.json"), "cannot be written", "another file"),
    ],
)
def test_bad_input(hotlap, tmp_path, monkeypatch, words, message, remedy):
    monkeypatch.chdir(tmp_path)
    said = hotlap(*words)
    assert said.code == 2 and message in said.err and remedy in said.err


def test_a_port_that_is_taken(hotlap, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = hotlap("serve", str(tmp_path), "--port", str(taken.getsockname()[1]))
    assert said.code == 2 and "cannot be used" in said.err and "leave --port away" in said.err


def test_any_folder_can_be_looked_at(hotlap, tmp_path):
    said = hotlap("watch", str(tmp_path))
    assert said.code == 0 and "No training step yet." in said.out
