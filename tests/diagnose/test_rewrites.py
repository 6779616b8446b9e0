"""From the facts of a run to patterns: at hot lines, at waits for the device, and where no line shows a trace."""

from dataclasses import replace

import pytest

from hotlap.diagnose.rewrites import recognised
from hotlap.diagnose.unmatched import unmatched
from hotlap.facts.timeline import HotLine, SourceLine, Stage, SyncPoint

SCRIPT = """import torch

torch.autograd.set_detect_anomaly(True)


def train(model, loader, device):
    running, losses = 0.0, []
    for x, y in loader:
        loss = model(x).sum()
        loss.backward()
        losses.append(loss)
        running += loss.item()
    return running


class Items:
    def __getitem__(self, index):
        out = []
        for word in self.words:
            out.append(clean(word))
        return self.words[index], tidy(out, self.table)
"""
ON_GPU = {
    "loss": "torch.Tensor float32 scalar cuda grad",
    "model": "train.Net torch.nn.modules.module.Module",
}


def line(number, stage, share=1.0, role="main", values=None, callee="", inner=""):
    text = SCRIPT.splitlines()[number - 1].strip()
    function = "train" if number < 15 else "Items.__getitem__"
    place = SourceLine("train.py", number, function, text)
    return HotLine(place, callee, stage, share, 100, role, inner, values or {})


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    return str(tmp_path)


def by_id(timeline, folder):
    return {each.id: each for each in recognised([timeline], folder)}


def test_a_wait_for_the_device_leads_to_its_line(make, folder):
    place = line(12, Stage.OTHER).place
    waits = (SyncPoint(place, "item", 200, 200 * 0.02),)
    timeline = make.timeline(40.0, lines=(line(9, Stage.FORWARD, values=ON_GPU),), syncs=waits)
    found = by_id(timeline, folder)["item-each-step"]
    assert (found.line, found.cost) == (12, "waiting")
    assert found.share == pytest.approx(0.5, rel=0.1)
    assert "+    running = float(running)" in found.diff
    shorter = replace(timeline, syncs=(replace(waits[0], seconds=0.01),))
    assert "item-each-step" not in by_id(shorter, folder)


def test_memory_and_switches_are_found_without_a_line_of_their_own(make, folder):
    timeline = make.timeline(40.0, lines=(line(9, Stage.FORWARD, values=ON_GPU),))
    found = by_id(timeline, folder)
    kept = found["kept-graphs"]
    assert (kept.line, kept.cost, kept.share) == (11, "memory", 0.0)
    assert "+        losses.append(loss.detach())" in kept.diff
    switch = found["debug-left-on"]
    assert (switch.line, switch.cost) == (3, "switch")
    assert switch.share > 0.5, "forward and backward, which it makes slower"


def test_nothing_is_looked_for_in_files_of_which_no_line_was_seen(make, folder):
    assert recognised([make.timeline(40.0)], folder) == ()


def test_a_hot_line_without_a_pattern_is_described_by_what_was_seen(make, folder):
    values = {"self": "train.Items", "self.words": "list 20 str", "out": "list 3 str"}
    hot = line(20, Stage.DATA, 0.8, values=values, callee="clean", inner="text.clean_all")
    timeline = make.fed(40.0)
    (loader_work,) = timeline.workers
    timeline = replace(timeline, lines=(hot,))
    (found,) = unmatched([timeline], folder, ())
    item_ms = loader_work.fetch_s * 1e3 / loader_work.items
    assert (found.runs, found.callee, found.inner) == (20, "clean", "text.clean_all")
    assert found.item_ms == pytest.approx(0.8 * item_ms)
    assert found.each_ms == pytest.approx(0.8 * item_ms / 20)
    assert found.values == {"out": "list 3 str"}
    unknown = replace(timeline, lines=(replace(hot, values={}),))
    (found,) = unmatched([unknown], folder, ())
    assert (found.runs, found.each_ms) == (None, None), "the length of the loop was not seen"


def test_what_the_model_computes_and_what_has_a_pattern_are_left_out(make, folder):
    forward = make.timeline(40.0, lines=(line(9, Stage.FORWARD, values=ON_GPU),))
    assert unmatched([forward], folder, ()) == ()
    timeline = replace(make.fed(40.0), lines=(line(20, Stage.DATA),))
    (known,) = unmatched([timeline], folder, ())
    pattern = replace(recognised([forward], folder)[0], function="Items.__getitem__")
    assert unmatched([timeline], folder, [pattern]) == ()
    assert known.line == 20
