"""The name of a cache: the same in every run for the same items, another one for anything that could change them."""

from __future__ import annotations

import functools
import io
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler
from torch.utils.data import Subset

from hotlap.data.cache.fingerprint import fingerprint
from hotlap.data.cache.messages import NoFileError
from hotlap.data.cache.source import source_of

CODE = """
import numpy as np
from torch.utils.data import Dataset

OFFSET = 1.0

def inner(value):
    return value + OFFSET

class Base(Dataset):
    def __len__(self):
        return 10

    def clean(self, value):
        return value

class Rows(Base):
    note = "none"

    def __init__(self, **given):
        self.__dict__.update(given)

    def __getitem__(self, index):
        return self.clean(inner(np.float32(index)))
"""


def rows(code: str = CODE, **given: Any) -> Any:
    """A dataset of a module with this source, as a script would have it."""
    module = types.ModuleType("script")
    module.__file__ = "script.py"
    sys.modules["script"] = module
    exec(compile(code, "script.py", "exec"), vars(module))
    return vars(module)["Rows"](**given)


def name(dataset: Any) -> str:
    return fingerprint(source_of(dataset)[0])


@pytest.fixture(autouse=True)
def forget_the_module():
    yield
    sys.modules.pop("script", None)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("OFFSET = 1.0", "OFFSET = 2.0"),
        ("value + OFFSET", "value - OFFSET"),
        ("return value\n", "return value * 2\n"),
        ("np.float32", "np.float64"),
        ('note = "none"', 'note = "some"'),
        ("def inner(value):", "def inner(value, more=1):"),
    ],
)
def test_changed_code_has_another_name(old, new):
    assert CODE.count(old) == 1
    assert name(rows()) != name(rows(CODE.replace(old, new)))


@pytest.mark.parametrize(
    "edit", [lambda code: "\n\n# a remark\n" + code, lambda code: code.replace("\n\n", "\n\n\n")]
)
def test_remarks_and_empty_lines_do_not_count(edit):
    assert name(rows()) == name(rows(edit(CODE)))


GIVEN: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "number": (lambda: 1, lambda: 2),
    "kind of number": (lambda: 1, lambda: 1.0),
    "list": (lambda: [1, [2]], lambda: [1, 2]),
    "order": (lambda: {"a": 1, "b": 2}, lambda: {"b": 2, "a": 1}),
    "set": (lambda: {"x", "y"}, lambda: {"x", "z"}),
    "array": (lambda: np.arange(9), lambda: np.arange(9)[::-1]),
    "dtype": (lambda: np.zeros(4, np.int32), lambda: np.zeros(4, np.float32)),
    "objects": (lambda: np.array(["a", None], object), lambda: np.array(["b", None], object)),
    "tensor": (lambda: torch.arange(9), lambda: torch.arange(9) + 1),
    "function": (lambda: lambda x: x + 1, lambda: lambda x: x + 2),
    "partial": (lambda: functools.partial(max, 1), lambda: functools.partial(max, 2)),
    "method": (lambda: "ab".join, lambda: "cd".join),
    "scaler": (
        lambda: StandardScaler().fit(np.arange(6.0).reshape(3, 2)),
        lambda: StandardScaler().fit(np.ones((3, 2))),
    ),
    "generator": (lambda: np.random.default_rng(1), lambda: np.random.default_rng(2)),
    "torch's own": (
        lambda: (torch.float32, torch.device("cpu")),
        lambda: (torch.float16, torch.device("cpu")),
    ),
}


@pytest.mark.parametrize("what", GIVEN)
def test_values_have_names(what):
    one, two = GIVEN[what]
    assert name(rows(given=one())) == name(rows(given=one()))
    assert name(rows(given=one())) != name(rows(given=two()))


def test_cycles_end():
    loop: list[Any] = [1]
    loop.append(loop)
    other: list[Any] = [2]
    other.append(other)
    assert name(rows(given=loop)) != name(rows(given=other))


def test_files_that_are_named(tmp_path):
    folder = tmp_path / "pictures"
    (folder / "inner").mkdir(parents=True)
    picture = folder / "inner" / "a.png"
    picture.write_text("1")
    named = [
        lambda: rows(given=picture),
        lambda: rows(given=str(folder)),
        lambda: rows(given=[{"p": str(picture)}]),
    ]
    code = CODE.replace("OFFSET = 1.0", f"OFFSET = 1.0\ndef more():\n    return open({str(picture)!r})")
    named.append(lambda: rows(code.replace("value + OFFSET", "value + more()")))
    before = [name(make()) for make in named]
    assert before == [name(make()) for make in named]
    picture.write_text("two")
    assert all(one != two for one, two in zip(before, [name(make()) for make in named], strict=True))


def test_the_caches_themselves_do_not_count(tmp_path, monkeypatch):
    monkeypatch.setenv("HOTLAP_CACHE", "data/kept")
    (tmp_path / "data" / "kept").mkdir(parents=True)
    (tmp_path / "data" / "a.txt").write_text("1")
    before = name(rows(given="data"))
    (tmp_path / "data" / "kept" / "part").write_text("1")
    assert name(rows(given="data")) == before
    (tmp_path / "data" / "b.txt").write_text("1")
    assert name(rows(given="data")) != before


def test_a_mapped_array_counts_by_its_file(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(100))
    before = name(rows(given=np.load(tmp_path / "a.npy", mmap_mode="r")))
    assert before == name(rows(given=np.load(tmp_path / "a.npy", mmap_mode="r")))
    np.save(tmp_path / "a.npy", np.ones(100))
    assert before != name(rows(given=np.load(tmp_path / "a.npy", mmap_mode="r")))


def test_a_part_of_a_dataset_has_a_name_of_its_own():
    assert len({name(rows()), name(Subset(rows(), [1, 2])), name(Subset(rows(), [1, 3]))}) == 3


@pytest.mark.parametrize(
    "value", [threading.Lock, lambda: io.BytesIO().getbuffer(), lambda: (n for n in "ab")]
)
def test_what_has_no_stable_hash_is_refused_by_name(value):
    given = value()
    with pytest.raises(NoFileError, match=r"Rows\.handles\['first'\] is a .* which has no stable hash"):
        name(rows(handles={"first": given}))


def test_the_name_is_the_same_in_another_process(tmp_path):
    (tmp_path / "other.py").write_text(
        CODE + "from hotlap.data.cache.fingerprint import fingerprint\n"
        "from hotlap.data.cache.source import source_of\n"
        "print(fingerprint(source_of(Rows(words={'x', 'yy', 'zzz'}, rows=np.arange(5)))[0]))\n"
    )
    argv, env = [sys.executable, "other.py"], {"PYTHONHASHSEED": "1"}
    told = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, check=True, text=True).stdout
    assert told.strip() == name(rows(words={"x", "yy", "zzz"}, rows=np.arange(5)))


def test_an_installed_package_is_a_library_wherever_it_lies(tmp_path, monkeypatch):
    """Such as in the folder of the user, or in that of another environment."""
    place = tmp_path / "elsewhere" / "site-packages"
    place.mkdir(parents=True)
    (place / "installed_rows.py").write_text(
        "FIRST = dict.__dict__['fromkeys']\ndef row(at):\n    return FIRST, at\n"
    )
    monkeypatch.syspath_prepend(str(place))
    import installed_rows  # type: ignore[import-not-found]

    class Rows:
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return installed_rows.row(index)

    assert fingerprint(source_of(Rows())[0])
