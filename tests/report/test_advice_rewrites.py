"""Changes of the user's source in reports: the sentence, both sides, what was measured, and lines without a pattern."""

import pytest

from hotlap.facts.codec import to_plain
from hotlap.facts.diagnosis import Interval
from hotlap.facts.rewrite import Recognised, Rewriting, Unmatched
from hotlap.report import advice
from hotlap.report.locale import LANGUAGES, Phrases
from hotlap.report.renderers.html import Html
from hotlap.report.renderers.markdown import Markdown
from hotlap.report.renderers.terminal import draw

DIFF = "--- a/data.py\n+++ b/data.py\n@@ -1 +1 @@\n-x = sum(t)\n+x = t.sum()\n"


def recognised(name, line, **changes):
    found = Rewriting(name, "data.py", line, "f", ("0:0",), "hash", "rounding")
    plain = {"rewriting": found, "before": ("x = sum(t)",), "after": ("x = t.sum()",), "diff": DIFF}
    return Recognised(name, "data.py", line, "f", changes.pop("share", 0.4), **{**plain, **changes})


@pytest.fixture
def view(views):
    found = (
        recognised(
            "sum-over-tensor",
            3,
            values={"builtin": "sum", "type": "torch.Tensor", "size": "16000"},
            gain=14.2,
            interval=Interval(13.0, 15.5),
        ),
        recognised("kept-graphs", 9, share=0.0, cost="memory", values={"name": "losses", "loss": "loss"}),
        recognised("logged-each-step", 12, rewriting=None, values={"call": "print"}),
        recognised(
            "half-sizes", 14, rewriting=None, cost="switch", values={"size": "1003", "better": "1008"}
        ),
    )
    others = (
        Unmatched(
            "data.py", 30, "out.append(clean(word))", 0.35, "clean", "text.split_all", 20, 0.4, 8.0,
            {"out": "list 20 str"},
        ),
        Unmatched("data.py", 41, "y = tidy(x)", 0.12),
    )  # fmt: skip
    return {**views["data-bound"], "rewrites": to_plain(found), "unmatched": to_plain(others)}


def test_the_terminal_shows_each_with_what_is_known_of_it(view):
    text = " ".join(draw(view).split())
    assert "Measured: +1,420 % (1,300 to 1,550)" in text
    assert "losses keeps the graph of every loss" in text and "It costs memory" in text
    assert "data.py:12" in text and "data.py:14" not in text, "advice on switches is in the JSON alone"
    assert "35 % of each step is here. It takes 400 us each time. It runs 20 times an item." in text.replace(
        "µ", "u"
    )
    assert "It calls clean. Most of that is in text.split_all. Seen: out: list 20 str." in text
    assert "No known pattern; 12 % of each step is here. y = tidy(x)" in text


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_output_shows_all_of_them(view, lang):
    page, text = Html().render(view, lang), Markdown().render(view, lang)
    for each in advice.lines(view, Phrases(lang)):
        assert each[0] in page and each[0] in text
        assert "{" not in each[2] and "[[" not in each[2]
    assert page.count('<div class="sides">') == 3
    assert "clean(word)" in page and "clean(word)" in text.replace("\\", "")


def test_lines_without_a_pattern_stand_alone_too(view):
    alone = {**view, "rewrites": []}
    assert "data.py:30" in draw(alone) and "data.py:30" in Html().render(alone)
    assert "What to write instead" not in draw({**alone, "unmatched": []})
