"""What a script's source says of the type of its loader's dataset."""

from __future__ import annotations

import pytest

from hotlap.sameness.names import compares_type_of

HARMLESS = (
    "isinstance(loader.dataset, Rows)",
    "print(type(loader.dataset).__name__)",
    "print(loader.dataset.__class__.__qualname__)",
    "type(dataset) is Rows; len(loader.dataset)",
    "type(loader) is DataLoader; loader.dataset",
    "type('Made', (), {}); x.dataset",
    "loader.dataset.__class__ type(",
)
COMPARED = (
    "if type(loader.dataset) is Rows: pass",
    "if self.trainer.loader.dataset.__class__ == Rows: pass",
    "rows = loader.dataset\nassert type(rows) in (Rows, Others)",
    "kinds[type(loader.dataset)] = 1",
)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_a_subclass_answers_alike_is_harmless(text):
    assert compares_type_of("dataset", text) is None


@pytest.mark.parametrize("text", COMPARED)
def test_a_type_that_is_compared_is_found_at_its_line(text):
    assert compares_type_of("dataset", f"\n{text}") == 1 + len(text.splitlines())
