"""`--json` prints the view and nothing else."""

from __future__ import annotations

import json

import pytest

from hotlap.report.renderers.json import Json


@pytest.mark.parametrize("name", ["data-bound", "nothing-measured"])
def test_prints_the_view(views, name):
    text = Json().render(views[name])
    assert json.loads(text) == views[name]
    assert text.isascii() and len(text.splitlines()) == len(views[name]) + 2


def test_is_the_same_in_every_language(views):
    assert Json().render(views["healthy"], "zh") == Json().render(views["healthy"], "en")


def test_a_path_that_is_no_text_is_still_written(views):
    view = {**views["healthy"], "run": "runs/\udcff"}
    assert json.loads(Json().render(view).encode())["run"] == "runs/\udcff"


def test_a_number_that_json_does_not_know_is_a_fault(views):
    with pytest.raises(ValueError, match="JSON compliant"):
        Json().render({**views["healthy"], "coverage": float("nan")})
