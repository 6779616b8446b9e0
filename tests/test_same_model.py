"""The short form of bench/same_model.py: attacks of each class, plain and under a setting, in fresh processes."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "bench"
CACHE, WORKERS, KEPT = "cache-dataset=memory", "num-workers=2", "persistent-workers"
ATTACKED = {
    "list changed in place": (CACHE, KEPT),
    "dict value changed": (CACHE,),
    "large array changed in one element": (CACHE, KEPT),
    "tensor.data changed": (CACHE,),
    "attribute in slots": (CACHE,),
    "global": (CACHE, KEPT),
    "class attribute": (CACHE, KEPT),
    "environment variable": (CACHE,),
    "closure cell": (CACHE,),
    "file rewritten with its size and mtime": (CACHE,),
    "database": (CACHE,),
    "item counts its calls": (CACHE, WORKERS),
    "curriculum in mid-epoch": (CACHE, WORKERS),
    "draws after iter(loader)": (WORKERS,),
    "collate writes to items": (CACHE, WORKERS),
    "items alias each other": (CACHE,),
    "noise in one item of 64": (CACHE, WORKERS, "loader"),
    "collate draws": (WORKERS,),
    "sampler with state": (WORKERS,),
    "sampler reads loss feedback": (WORKERS,),
    "trainer: masking collator": (WORKERS,),
    "attribute of a function": (CACHE, KEPT),
    "library function monkeypatched": (KEPT,),
    "indices of a narrow type": (CACHE,),
    "batch size of the batch sampler": ("prefetch-factor",),
    "generator in a global": ("batched-fetch",),
    "dataset with a NumPy generator": ("cache-dataset=file",),
    "array changed before the end of a slow epoch": ("num-workers=0",),
    "list changed after iter(loader)": ("loader, workers",),
    "type of the dataset compared": (CACHE,),
    "collate changed between epochs": (KEPT, "batched-fetch", "loader"),
}
SERVED = {"transforms objects": (CACHE, WORKERS), "npy files": (CACHE, WORKERS), "random_split": (CACHE,)}


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    sys.path.insert(0, str(BENCH))
    try:
        import same_model
    finally:
        sys.path.remove(str(BENCH))
    return same_model


@pytest.fixture(scope="module")
def decided(bench: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    runs = bench.Runs(tmp_path_factory.mktemp("attacks"))
    named = {each.name: each for each in bench.catalogue()}
    return lambda name, label: bench.decide(bench.Case(named[name], label), runs)


@pytest.mark.parametrize(
    ("name", "label"), [(name, label) for name, labels in ATTACKED.items() for label in labels]
)
def test_another_model_is_never_trained_in_silence(name: str, label: str, decided: Any) -> None:
    found = decided(name, label)
    assert found.verdict in ("EQUAL", "REFUSED", "NOT CLAIMED", "ENDED"), found


@pytest.mark.parametrize(
    ("name", "label"), [(name, label) for name, labels in SERVED.items() for label in labels]
)
def test_a_healthy_job_is_served_and_trains_the_same_model(name: str, label: str, decided: Any) -> None:
    found = decided(name, label)
    assert found.verdict == "EQUAL", found


def test_the_catalogue_holds_what_it_says(bench: ModuleType) -> None:
    found = bench.catalogue()
    controls = [each for each in found if each.kind == bench.CONTROL]
    assert len(found) - len(controls) >= 60 and len(controls) >= 10
    for each in found:
        for workers in each.workers:
            compile(each.script(workers), each.name, "exec")


def _run(bench: ModuleType, batches: list[str], **words: Any) -> Any:
    result = {"parameters": str(batches), "states": {}, "batches": batches}
    fitted = [
        {"knob": "cache-dataset", "acts": True, "reason": "", "numerics": "bitwise"} | words.pop("fitted", {})
    ]
    code, output = words.pop("code", 0), words.pop("output", "")
    return bench.Run(code, output, result, {"fitted": fitted, **words}, "")


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ({}, "SILENT"),
        ({"fitted": {"acts": False}}, "SILENT"),
        ({"fitted": {"numerics": "statistical"}}, "NOT CLAIMED"),
        ({"breaches": [{"knob": "cache-dataset", "what": "item 3", "batches": 9}]}, "ENDED"),
        ({"breaches": [{"knob": "num-workers", "what": "item 3", "batches": 9}]}, "SILENT"),
        ({"code": 1}, "CRASH"),
        ({"output": "more"}, "CRASH"),
        (
            {"output": "more", "breaches": [{"knob": "cache-dataset", "what": "item 3", "batches": 9}]},
            "ENDED",
        ),
    ],
)
def test_runs_that_differ_are_judged_by_what_was_said(bench: ModuleType, words: Any, verdict: str) -> None:
    case = bench.Case(bench.catalogue()[0], CACHE)
    plain = bench.Run(0, "", {"parameters": "", "states": {}, "batches": list("abcde")}, {}, "")
    found = bench.judge(case, plain, _run(bench, list("abXdY"), **words))
    assert found.verdict == verdict
    assert found.delay == (3 if verdict == "ENDED" else None)


@pytest.mark.parametrize(("acts", "verdict"), [(True, "EQUAL"), (False, "REFUSED")])
def test_runs_that_are_the_same_are_told_apart_by_whether_the_setting_acted(
    bench: ModuleType, acts: bool, verdict: str
) -> None:
    case, plain = bench.Case(bench.catalogue()[0], CACHE), _run(bench, list("abc"))
    assert bench.judge(case, plain, _run(bench, list("abc"), fitted={"acts": acts})).verdict == verdict


def test_a_breach_of_a_healthy_job_is_listed(bench: ModuleType) -> None:
    control = next(each for each in bench.catalogue() if each.kind == bench.CONTROL)
    case, plain = bench.Case(control, CACHE), _run(bench, list("abc"))
    breaches = [{"knob": "cache-dataset", "what": "item 3", "batches": 9}]
    alarm = bench.judge(case, plain, _run(bench, list("abc"), breaches=breaches))
    (line,) = bench.listed([alarm, bench.judge(case, plain, _run(bench, list("abc")))])
    assert "control not served" in line and "item 3" in line
