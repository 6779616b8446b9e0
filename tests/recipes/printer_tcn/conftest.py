"""Simulated prints on disk, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotlap_recipes.printer_tcn import make_data


@pytest.fixture(scope="session")
def prints_folder(tmp_path_factory) -> Path:
    """Two parts of two layers, 600 steps each: 4 prints of 81 windows."""
    out = tmp_path_factory.mktemp("prints")
    make_data.write_prints(out, ["cube", "vase"], layers=2, steps=600, seed=3)
    return out
