"""Planted synchronisations: each is counted once, at its line."""

from __future__ import annotations

import contextlib
import inspect
import io

import numpy as np
import pytest
import torch

from hotlap.probe import marks
from hotlap.probe.taps import sync


@pytest.fixture
def tap(session):
    return sync.install(session)


@pytest.fixture
def found(session, tap):
    """(line, call) -> count, of what was seen so far."""

    def read():
        for portrait in session.portraits:
            portrait()
        rows = session.facts["syncs"]
        assert {file for file, *_ in rows} <= {__file__}
        return {(line, call): count for _, line, _, call, count, _ in rows}

    return read


def line_of(text: str) -> int:
    lines, first = inspect.getsourcelines(planted)
    return first + next(index for index, line in enumerate(lines) if text in line)


def planted(value: torch.Tensor) -> list[object]:
    got: list[object] = []
    for _ in range(3):
        got.append(value.item())
    got.append(float(value))
    got.append(int(value))
    if value:
        got.append(value.cpu())
        got.append(value.numpy())
    got.append(value.tolist())
    print(value)
    got.append(f"{value:.2f} {value}")
    got.append([v.item() for v in torch.ones(5)])
    got.append(value > 0 and value < 9)
    return got


EXPECTED = {
    ("got.append(value.item())", ".item()"): 3,
    ("float(value)", "float()"): 1,
    ("int(value)", "int()"): 1,
    ("if value:", "bool()"): 1,
    ("value.cpu()", ".cpu()"): 1,
    ("value.numpy()", ".numpy()"): 1,
    ("value.tolist()", ".tolist()"): 1,
    ("print(value)", "print"): 1,
    ("{value:.2f}", "format"): 2,
    ("torch.ones(5)", ".item()"): 5,
    ("value > 0 and", "bool()"): 1,
}


def test_every_planted_synchronisation_is_counted_at_its_line(found, session):
    alone, watched = torch.tensor(3.0), torch.tensor(3.0)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        got = planted(watched)
    assert found() == {(line_of(text), call): count for (text, call), count in EXPECTED.items()}
    session.detach()
    with contextlib.redirect_stdout(io.StringIO()) as without:
        assert repr(planted(alone)) == repr(got)
    assert printed.getvalue() == without.getvalue()


def test_each_takes_its_time_and_leaves_two_marks_and_its_place(tap, written, session):
    torch.tensor(3.0).item()
    (enter, start), (leave, end), place = written()
    assert (enter, leave, place) == ("+SYNC", "-SYNC", (str(marks.SYNC_PLACE), 0))
    session.portraits[-1]()
    ((*_, count, spent),) = session.facts["syncs"]
    assert (count, spent) == (1, end - start)


def test_torchs_own_looks_at_its_values_do_not_count(found):
    weight = torch.nn.Parameter(torch.ones(3))
    adam = torch.optim.Adam([weight], foreach=False)
    for _ in range(2):
        weight.sum().backward()
        adam.step()
    np.asarray(torch.ones(2))
    torch.nn.utils.clip_grad_norm_([weight], 1.0)
    assert found() == {}


def test_a_library_that_is_called_from_the_script_is_blamed_on_the_scripts_line(found, tmp_path):
    path = tmp_path / "site-packages" / "torchmetrics.py"
    path.parent.mkdir()
    text = "def update(t):\n    return t.item()\n"
    space: dict = {}
    exec(compile(text, str(path), "exec"), space)
    line = inspect.currentframe().f_lineno + 1
    space["update"](torch.tensor(1.0))
    assert found() == {(line, ".item()"): 1}


def test_an_exception_passes(found):
    with pytest.raises(RuntimeError):
        torch.ones(2).item()
    assert sum(found().values()) == 1, "the host asked, and it took its time"


def test_a_loop_of_many_is_counted_to_the_last_but_marked_for_a_while_only(found, written):
    line = inspect.currentframe().f_lineno + 2
    for _ in range(1000):
        torch.tensor(1.0).item()
    assert found() == {(line, ".item()"): 1000}
    assert len(written()) == 3 * 64


def test_subclasses_keep_their_own_ways(tap):
    class Odd(torch.Tensor):
        def item(self):
            return "odd"

    assert torch.ones(1).as_subclass(Odd).item() == "odd"


def test_detaching_gives_torch_back(session):
    before = {name: getattr(torch.Tensor, name) for name in sync._CALLS}
    sync.install(session)
    session.detach()
    assert {name: getattr(torch.Tensor, name) for name in sync._CALLS} == before
