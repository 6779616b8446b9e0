"""Every format that is found passes the conformance suite, and the suite finds what is wrong with one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hotlap.data.formats import all_formats
from hotlap.data.formats.flat import Flat, FlatWriter
from hotlap.ports.shard_format import ShardReader
from hotlap.testing.formats import check_format, write_shard

TAKES = {"nemo": {"sound"}}


@pytest.mark.parametrize("name", sorted(all_formats()))
def test_a_format_gives_back_what_it_was_given(name, tmp_path):
    taken = set(check_format(all_formats()[name], tmp_path))
    assert taken == TAKES.get(name, {"sound", "windows", "sequences", "pictures", "values"})


def test_the_expected_formats_are_found():
    assert {"tar", "nemo", "flat", "parquet"} <= set(all_formats())


class Spoiled(ShardReader):
    """Passes everything on, but for one fault."""

    def __init__(self, reader: ShardReader, fault: str) -> None:
        self._reader, self._fault = reader, fault

    @property
    def keys(self):
        return list(self._reader.keys)[:: -1 if self._fault == "order" else 1]

    def read(self, position):
        fields = self._reader.read(position)
        for name, value in fields.items():
            if isinstance(value, np.ndarray) and value.size:
                if self._fault == "dtype":
                    fields[name] = value.astype(np.float16 if value.dtype == np.float32 else value.dtype)
                if self._fault == "frozen":
                    value.flags.writeable = False
            elif self._fault == "int" and type(value) is int:
                fields[name] = float(value)
        return fields

    def gather(self, positions):
        found = self._reader.gather(positions)
        return (
            found and {name: each[::-1] for name, each in found.items()} if self._fault == "gather" else found
        )


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("order", "gives other keys back"),
        ("dtype", "has another content"),
        ("int", "is <class 'float'>, not <class 'int'>"),
        ("frozen", "cannot be changed by its owner"),
        ("gather", "gathers other"),
    ],
)
def test_the_suite_finds_a_fault(fault, complaint, tmp_path, monkeypatch):
    def spoiled(self, path, real=Flat.open):
        return Spoiled(real(self, path), fault)

    monkeypatch.setattr(Flat, "open", spoiled)
    with pytest.raises(AssertionError, match=complaint):
        check_format(Flat(), tmp_path)


def test_the_suite_finds_bytes_that_differ_from_run_to_run(tmp_path, monkeypatch):
    drawn = iter(range(100))

    def close(self, real=FlatWriter.close):
        real(self)
        with self._path.open("ab") as file:
            file.write(bytes([next(drawn)]))

    monkeypatch.setattr(FlatWriter, "close", close)
    with pytest.raises(AssertionError, match=r"wrote shard_0\.flat in two ways"):
        check_format(Flat(), tmp_path)


@pytest.mark.parametrize("name", ["tar", "flat", "parquet"])
def test_many_threads_may_read_one_shard(name, tmp_path):
    samples = [(f"k{at}", {"x": np.full(20_000, at, np.int64)}) for at in range(300)]  # several row groups
    reader = all_formats()[name].open(write_shard(all_formats()[name], tmp_path, samples))
    order = np.random.default_rng(0).integers(0, 300, 400).tolist()
    with ThreadPoolExecutor(8) as threads:
        for at, fields in zip(order, threads.map(reader.read, order), strict=True):
            assert fields["x"][0] == fields["x"][-1] == at
