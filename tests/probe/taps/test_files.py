"""Saving is a checkpoint; printing and Python's logging are logging, and say what they always said."""

from __future__ import annotations

import builtins
import logging
import threading
import time

import pytest
import torch

from hotlap.probe.taps import files

WAIT_S = 0.02


@pytest.fixture(autouse=True)
def tap(session):
    files.install(session)


@pytest.fixture
def names(written):
    return lambda: [name for name, _ in written()]


class SlowStream(logging.Handler):
    def emit(self, record):
        time.sleep(WAIT_S)


@pytest.fixture
def logger():
    made = logging.Logger("planted", logging.INFO)
    made.addHandler(SlowStream())
    return made


def test_saving_is_a_checkpoint(tmp_path, names):
    torch.save({"weight": torch.ones(3)}, tmp_path / "model.pt")
    assert names() == ["+CHECKPOINT", "-CHECKPOINT"]
    assert torch.load(tmp_path / "model.pt")["weight"].tolist() == [1, 1, 1]


def test_saving_that_fails_is_marked_whole_and_fails_as_before(tmp_path, names):
    with pytest.raises(RuntimeError, match="Parent directory"):
        torch.save({}, tmp_path / "absent" / "model.pt")
    assert names() == ["+CHECKPOINT", "-CHECKPOINT"]


def test_printing_is_logging(capsys, names):
    print("loss", 0.5, sep="=", end="!")
    assert capsys.readouterr().out == "loss=0.5!"
    assert names() == ["+LOG", "-LOG"]


def test_a_log_record_takes_what_its_stream_takes(logger, written):
    logger.info("step %d", 1)
    (entered, started), (left, ended) = written()
    assert (entered, left) == ("+LOG", "-LOG")
    assert ended - started >= WAIT_S * 1e9


def test_a_record_below_the_level_is_none(logger, names):
    logger.debug("step %d", 1)
    assert names() == []


def test_another_thread_may_say_what_it_likes(logger, names):
    thread = threading.Thread(target=lambda: (print("read"), logger.info("read")))
    thread.start()
    thread.join()
    assert names() == []


def test_detached_everything_is_as_it_was(session):
    session.detach()
    assert builtins.print.__module__ == "builtins" and not hasattr(builtins.print, "__wrapped__")
    assert not hasattr(torch.save, "__wrapped__")
    assert not hasattr(logging.Logger.handle, "__wrapped__")
