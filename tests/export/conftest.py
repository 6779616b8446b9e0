"""Views of stored runs for exports: those that the tests of reports draw."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def reports():
    """The runs made in code of tests/report."""
    path = Path(__file__).parents[1] / "report" / "conftest.py"
    spec = importlib.util.spec_from_file_location("report_runs", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def view(reports):
    return reports.profile_view(
        reports.job(), reports.make_host(), [reports.starved()], reports.starved_diagnosis(), reports.RUN,
        reports.starved_experiments(),
    )  # fmt: skip


@pytest.fixture(scope="session")
def two_ranks(reports):
    return reports.profile_view(
        reports.job(), reports.make_host(), reports.two_ranks(), reports.two_ranks_diagnosis(), reports.RUN
    )
