"""Called back right after a module was executed, however it came to be imported, and never harmed by it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import zipfile
from importlib.machinery import PathFinder, SourceFileLoader

import pytest

from hotlap.launch.import_hook import Doorman
from hotlap.probe import boundary

MODULES = {
    "made_plain.py": "value = 1\n",
    "made_package/__init__.py": "from made_package import inner\n",
    "made_package/inner.py": "value = 2\n",
    "made_asks.py": "import importlib.util\nseen = importlib.util.find_spec('made_plain') is not None\n",
    "made_fails.py": "import made_switch\nif made_switch.fails: raise ImportError('not yet')\n",
    "made_switch.py": "fails = True\n",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, text in MODULES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture
def doorman(folder):
    made = Doorman()
    sys.meta_path.insert(0, made)
    yield made
    sys.meta_path.remove(made)
    for name in [name for name in sys.modules if name.startswith("made_")]:
        del sys.modules[name]
    boundary.faults.clear()


@pytest.fixture
def came(doorman):
    """Names of modules in the order in which they came, with what they held at that moment."""
    seen: list[tuple[str, bool]] = []

    def expect(*names: str) -> list[tuple[str, bool]]:
        for name in names:
            doorman.expect(name, lambda module: seen.append((module.__name__, hasattr(module, "value"))))
        return seen

    return expect


def test_the_callback_comes_once_the_module_has_run(came):
    seen = came("made_plain")
    assert seen == []
    importlib.import_module("made_plain")
    assert seen == [("made_plain", True)]
    importlib.import_module("made_plain")
    importlib.reload(sys.modules["made_plain"])
    assert seen == [("made_plain", True)], "once is enough"


def test_to_ask_whether_a_module_exists_does_not_use_the_callback_up(came):
    seen = came("made_plain")
    assert importlib.util.find_spec("made_plain") is not None
    importlib.import_module("made_asks")
    assert seen == []
    importlib.import_module("made_plain")
    assert seen == [("made_plain", True)]


def test_a_module_that_is_there_already_comes_at_once(came, folder):
    importlib.import_module("made_plain")
    assert came("made_plain") == [("made_plain", True)]


def test_submodules_come_before_the_package_that_imports_them(came):
    seen = came("made_package", "made_package.inner")
    importlib.import_module("made_package")
    assert seen == [("made_package.inner", True), ("made_package", False)]


def test_a_module_that_does_not_exist_is_still_not_found(came):
    seen = came("made_up")
    assert importlib.util.find_spec("made_up") is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("made_up")
    assert seen == []


def test_an_import_that_fails_first_and_succeeds_later(came):
    seen = came("made_fails")
    with pytest.raises(ImportError, match="not yet"):
        importlib.import_module("made_fails")
    assert seen == []
    sys.modules["made_switch"].fails = False
    importlib.import_module("made_fails")
    assert [name for name, _ in seen] == ["made_fails"]


def test_a_callback_that_fails_harms_neither_the_import_nor_the_next_callback(came, doorman):
    doorman.expect("made_plain", lambda module: 1 // 0)
    seen = came("made_plain")
    assert importlib.import_module("made_plain").value == 1
    assert seen == [("made_plain", True)]
    assert "ZeroDivisionError" in boundary.faults[0]


class EditableFinder:
    """As an editable install puts one on sys.meta_path: it maps a name to a folder elsewhere."""

    def __init__(self, folder):
        self.folder = folder
        self.asked = []

    def find_spec(self, fullname, path=None, target=None):
        self.asked.append(fullname)
        if fullname != "made_editable":
            return None
        return importlib.util.spec_from_file_location(fullname, self.folder / "elsewhere" / "code.py")


def test_a_finder_of_an_editable_install_finds_as_before(came, folder):
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "code.py").write_text("value = 3\n")
    finder = EditableFinder(folder)
    sys.meta_path.append(finder)
    try:
        seen = came("made_editable")
        assert importlib.import_module("made_editable").value == 3
    finally:
        sys.meta_path.remove(finder)
    assert seen == [("made_editable", True)]
    assert finder.asked.count("made_editable") == 1


def test_modules_of_one_zip_file_share_a_loader_and_are_told_apart(came, tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("made_zip/__init__.py", "value = 1\n")
        archive.writestr("made_zip/early.py", "value = 2\n")
        archive.writestr("made_zip/late.py", "value = 3\n")
    monkeypatch.syspath_prepend(tmp_path / "all.zip")
    seen = came("made_zip", "made_zip.late")
    importlib.util.find_spec("made_zip.late")
    importlib.import_module("made_zip.early")
    importlib.import_module("made_zip.late")
    assert seen == [("made_zip", True), ("made_zip.late", True)]


def test_a_loader_that_cannot_be_listened_to_still_loads(came, folder):
    class Rigid(SourceFileLoader):
        def __setattr__(self, name, value):
            if name == "exec_module":
                raise AttributeError(name)
            super().__setattr__(name, value)

    class Finder:
        def find_spec(self, fullname, path=None, target=None):
            if fullname != "made_plain":
                return None
            loader = Rigid(fullname, str(folder / "made_plain.py"))
            return importlib.util.spec_from_loader(fullname, loader)

    finder = Finder()
    sys.meta_path.insert(1, finder)
    try:
        seen = came("made_plain")
        assert importlib.import_module("made_plain").value == 1
    finally:
        sys.meta_path.remove(finder)
    assert seen == []
    assert "made_plain" in boundary.faults[0]


def test_names_that_nobody_expects_are_left_to_the_others(doorman, came):
    came("made_plain")
    assert doorman.find_spec("json", None) is None
    assert doorman.find_spec("made_package", None) is None
    assert doorman.find_spec("made_plain", None).origin == PathFinder.find_spec("made_plain").origin
