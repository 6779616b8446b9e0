"""Reasons that facts hold in English are said in Chinese, whole and with their figures."""

from __future__ import annotations

import re

import pytest

from hotlap.report.locale import Phrases, fields, texts
from hotlap.report.words import translated

ENGLISH, CHINESE = Phrases("en"), Phrases("zh")
REASONS = [key for key in texts("en") if key.startswith("reason.")]


def filled(key):
    return ENGLISH(key, dict.fromkeys(fields(texts("en")[key]), "7"))


@pytest.mark.parametrize("key", REASONS)
def test_every_reason_is_known_in_both_languages(key):
    reason = filled(key)
    assert translated(reason, ENGLISH) == reason
    assert translated(reason, CHINESE) == CHINESE(key, dict.fromkeys(fields(texts("zh")[key]), "7"))
    assert re.search("[\u4e00-\u9fff]", translated(reason, CHINESE))


def test_a_reason_inside_a_reason_is_said_as_well():
    reason = "the guard says different: the losses (from number 3) are not the same"
    assert translated(reason, CHINESE) == "校验结果为不一致：损失（从第 3 个起）不相同"


def test_what_nobody_knows_stays_as_it_is():
    assert translated("CUDA error: 7", CHINESE) == "CUDA error: 7"
    assert translated("the job died: CUDA error: 7", CHINESE) == "任务中途退出：CUDA error: 7"
