"""Subjects on disk, made once: few, short and narrow."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from hotlap_recipes.seqset_vae import make_data
from hotlap_recipes.seqset_vae.subjects import ParquetSubjects


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory) -> Path:
    """48, 9 and 8 subjects of 4 to 40 sets, embeddings of 16 numbers."""
    return make_data.write_subjects(tmp_path_factory.mktemp("subjects") / "data", (48, 9, 8), 16, (4, 40))


@pytest.fixture(scope="session")
def items(data_dir):
    subjects = ParquetSubjects(str(data_dir), "train")
    return [subjects[index] for index in range(6)]


@pytest.fixture(autouse=True)
def one_thread():
    """Two threads wait for each other at every operation, for long where another process holds a core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    yield
    torch.set_num_threads(before)
