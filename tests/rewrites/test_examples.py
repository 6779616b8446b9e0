"""Every pattern on scripts as different users write them, and on look-alikes where it must stay silent.

An example is a piece of a script and, behind `>>>`, an expression. It is run as it is, what the probe would see of its
values is noted line by line, and where the pattern is a rewrite the changed script is run too, and the results are
compared.
"""

import io
import re
import sys
import tempfile
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from hotlap import rewrites
from hotlap.discover import card
from hotlap.ports.knob import Numerics
from hotlap.probe.values import values_of
from hotlap.report.locale import LANGUAGES, Phrases, fields, texts
from hotlap.rewriting.hook import all_rewrites, spotted
from hotlap.source.files import SourceFile, changed_file, compiled, edited
from hotlap.source.values import merged

pytestmark = pytest.mark.runs

FOLDER = Path(__file__).parent / "examples"
PREAMBLE = "import copy, json, math, os, re\nimport numpy as np\nimport torch\nfrom torch import nn\n"
PART = re.compile(r"^--- (yes|no): (.*)$", re.MULTILINE)
LEAST = 4  # of each kind


def examples(kind):
    for path in sorted(FOLDER.glob("*.txt")):
        parts = PART.split(path.read_text())[1:]
        for found, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            if found == kind:
                yield pytest.param(path.stem, text, id=f"{path.stem}-{name.replace(' ', '-')}")


def picture():
    """A JPEG, as a file in memory."""
    file = io.BytesIO()
    Image.new("RGB", (64, 48), (200, 100, 50)).save(file, "JPEG")
    file.seek(0)
    return file


def library(name, **functions):
    """Stands for one that is not installed: the pattern goes by its name."""
    found = sys.modules[name] = types.ModuleType(name)
    vars(found).update(functions)
    return found


def written(text, array=None):
    """The path of a file with this in it."""
    path = tempfile.mkstemp(suffix=".json" if array is None else ".npy")[1]
    if array is None:
        Path(path).write_text(text)
    else:
        np.save(path, array)
    return path


OFFERED = {each.__name__: each for each in (picture, library, written)}


def run_on_device(function):
    """On a device that holds no numbers: taking one out of it fails, and by then the values have been seen."""
    try:
        function(torch.ones(3, device="meta"))
    except (RuntimeError, NotImplementedError):
        return 0


def run(code, call, file):
    """The value of the expression, and what was seen of each function's values."""
    looks = []

    def trace(frame, event, _):
        if frame.f_code.co_filename != file:
            return None
        if event in ("line", "return"):
            looks.append(values_of(frame, traced=True))
        return trace

    torch.manual_seed(0)
    namespace = {"__name__": "example", "__file__": file, "run_on_device": run_on_device, **OFFERED}
    exec(code, namespace)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        value = eval(call, namespace)
    finally:
        sys.settrace(before)
    return value, merged(looks)


def look(pattern, text, tmp_path):
    """The source, its sites, and the value of its expression."""
    code, _, call = text.strip("\n").rpartition("\n>>> ")
    path = tmp_path / "example.py"
    path.write_text(f"{PREAMBLE}{code}\n")
    source = SourceFile.read(path)
    value, seen = run(compiled(source.text, [], str(path)), call, str(path))
    unit = all_rewrites()[pattern]
    sites = [site for function in source.functions for site in spotted(function, seen, unit)]
    return source, sites, value, call


@pytest.mark.filterwarnings("ignore")  # of torch, which warns of some of these too
@pytest.mark.parametrize(("pattern", "text"), list(examples("yes")))
def test_it_is_recognised_and_the_change_computes_the_same(pattern, text, tmp_path):
    source, sites, value, call = look(pattern, text, tmp_path)
    assert sites, "not recognised"
    for each in sites:
        for lang in LANGUAGES:
            wanted = fields(re.sub(r"\[\[.*?\]\]", "", texts(lang)[f"rewrite.{pattern}"]))
            assert wanted <= each.site.values.keys()
            assert Phrases(lang)(f"rewrite.{pattern}", each.site.values)
    edits = [edit for each in sites for edit in each.edits]
    if any(each.site.advice for each in sites):
        assert compiled(source.text, edits, str(source.path))
        return
    assert edits
    after = edited(source.text, edits)
    for line in [*after.decode().splitlines()]:
        assert line == line.rstrip()
    again, _ = run(compiled(source.text, edits, str(source.path)), call, str(source.path))
    original, changed = compiled(source.text, [], str(source.path)), changed_file(source, edits)
    assert changed.within(original, str(source.path)) == changed.whole(str(source.path))
    classes = {each.site.numerics or each.pattern.numerics for each in sites}
    compare(value, again, exact=classes == {Numerics.BITWISE})


@pytest.mark.parametrize(("pattern", "text"), list(examples("no")))
def test_it_stays_silent_on_what_only_looks_like_it(pattern, text, tmp_path):
    assert look(pattern, text, tmp_path)[1] == []


@pytest.mark.parametrize("pattern", sorted(all_rewrites()))
def test_each_has_its_examples_its_card_and_its_words(pattern):
    path = FOLDER / f"{pattern}.txt"
    kinds = [found for found, _ in PART.findall(path.read_text())]
    assert min(kinds.count("yes"), kinds.count("no")) >= LEAST
    unit = all_rewrites()[pattern]
    sections = ("What it is", "Before", "After", "When it is the same", "When it is not")
    assert all(f"\n{section}\n    " in card(unit) for section in sections)
    assert type(unit).__module__ == f"{rewrites.__name__}.{pattern.replace('-', '_')}"


def compare(one, other, *, exact):
    assert type(one) is type(other)
    if isinstance(one, list | tuple):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            compare(*pair, exact=exact)
    elif isinstance(one, torch.Tensor | np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        near = torch.as_tensor(one).double(), torch.as_tensor(other).double()
        assert torch.equal(*near) if exact else torch.allclose(*near, rtol=1e-4, atol=1e-6)
    elif isinstance(one, float | np.floating) and not exact:
        assert one == pytest.approx(other, rel=1e-4)
    else:
        assert one == other
