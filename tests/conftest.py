"""Small trainings in this process, with settings of a plan at the seams of compute, for tests of knobs and of seams."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_timeout
from _pytest.runner import runtestprotocol

# Two threads wait for each other at every operation, for long where another process holds a core. Torch reads this
# once, when it is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")


_TESTS = Path(__file__).resolve().parent


def _packages_of_facts() -> frozenset[str]:
    """What by contract imports neither torch nor numpy: facts, and what is computed from them."""
    settings = tomllib.loads((_TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (contract,) = (each for each in contracts if each.get("forbidden_modules") == ["torch", "numpy"])
    return frozenset(name.split(".")[1] for name in contract["source_modules"])


FACTS = _packages_of_facts()
RUNS = "pytestmark = pytest.mark.runs"
_STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"}
_only_facts = False  # while tests that only read facts are imported or run, with `-m facts`


def _mirrors_facts(path: Path) -> bool:
    """Tests mirror the packages: `tests/judge/...` is about `hotlap.judge`, `tests/test_units.py` about `units`."""
    top, *_ = path.relative_to(_TESTS).parts
    return top.removeprefix("test_").removesuffix(".py") in FACTS


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Only files that can have tests of the mark are imported: importing all frameworks takes a while."""
    wanted = config.getoption("markexpr")
    if wanted not in ("alone", "facts") or not collection_path.is_relative_to(_TESTS):
        return None
    if collection_path == _TESTS:
        return None
    if wanted == "facts":
        read = collection_path.suffix == ".py" and RUNS in collection_path.read_text(encoding="utf-8")
        return True if read or not _mirrors_facts(collection_path) else None
    tests = collection_path.rglob("test_*.py") if collection_path.is_dir() else [collection_path]
    named = any(each.suffix == ".py" and "mark.alone" in each.read_text(encoding="utf-8") for each in tests)
    return None if named else True


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    global _only_facts
    _only_facts = session.config.getoption("markexpr") == "facts"
    if _only_facts:
        _watch_facts_only()
    try:
        return (yield)
    finally:
        _only_facts = False


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        excluded = any(item.get_closest_marker(name) for name in ("alone", "runs"))
        if not excluded and _mirrors_facts(item.path):
            item.add_marker("facts")


def _refuse_what_takes_long(event: str, arguments: tuple[Any, ...]) -> None:
    """Keeps `-m facts` quick: what does not only read facts must say so."""
    if _only_facts and (event in _STARTS or (event == "import" and arguments[0] == "torch")):
        raise AssertionError(
            f"{event} {arguments[0]}: a test here only reads facts. Mark it `pytest.mark.runs`, or its file "
            f"`{RUNS}`, where it starts a process or computes with torch"
        )


@functools.cache
def _watch_facts_only() -> None:
    """Once, and with `-m facts` alone. Each event costs the tests that measure something; and CPython 3.11 fails to
    parse in two threads at once where a hook lets them take turns."""
    sys.addaudithook(_refuse_what_takes_long)


STOLEN = 0.1
"""Of all cores' time, taken by other guests of the host. What judges times, or waits for a process with a limit, can
fail then whatever the code does: such a test is run again once, with its fixtures, and the summary lists it."""
AGAIN = "run again"


def _ticks() -> tuple[int, int]:
    """Stolen and all, since the machine started; nothing where the kernel does not count them."""
    try:
        counts = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError):
        return 0, 0
    return counts[7], sum(counts)


def _stolen_since(before: tuple[int, int]) -> float:
    stolen, total = (now - then for now, then in zip(_ticks(), before, strict=True))
    return stolen / total if total else 0.0


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    global _only_facts
    _only_facts = item.config.getoption("markexpr") == "facts"
    try:
        return _run_and_again(item, nextitem)
    finally:
        _only_facts = False


def _run_and_again(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    before = _ticks()
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    share = _stolen_since(before)
    if any(report.failed for report in reports) and share > STOLEN:
        item.session._setupstate.teardown_exact(None)
        item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=pytest_timeout._get_item_settings(item))
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        reports[0].user_properties.append((AGAIN, f"{share:.0%}"))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter: Any) -> None:
    every = (report for reports in terminalreporter.stats.values() for report in reports)
    shares = {
        (report.nodeid, share)
        for report in every
        for name, share in getattr(report, "user_properties", ())
        if name == AGAIN
    }
    for nodeid, share in sorted(shares):
        terminalreporter.write_line(f"{AGAIN}: {nodeid}, as other guests took {share} of the cores' time")


@pytest.fixture(scope="session")
def trainings() -> Any:
    """The small trainings of guarded.py, and `guarded(folder, train, ...)`: a run of the guard on one of them."""
    if not hasattr(os, "fork"):
        pytest.skip("each run is a fork")
    spec = importlib.util.spec_from_file_location("guarded", Path(__file__).with_name("guarded.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass
class Trained:
    """A training that has ended."""

    net: Any
    optimizer: Any
    losses: list[float] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    rng: Any = None

    def same_as(self, other: Trained) -> bool:
        """To the last bit: parameters, buffers and random numbers."""
        mine, theirs = self.net.state_dict(), other.net.state_dict()
        values = all(mine[key].equal(theirs[key]) for key in mine)
        return list(mine) == list(theirs) and values and self.rng.equal(other.rng)

    def apart_from(self, other: Trained) -> float:
        """The largest difference of any parameter."""
        pairs = zip(self.net.parameters(), other.net.parameters(), strict=True)
        return max((mine - theirs).abs().max().item() for mine, theirs in pairs)


@pytest.fixture
def train() -> Callable[..., Trained]:
    """Trains `make()` for some steps as a raw loop does; `each` sees the network after each step."""
    import torch
    from torch import nn

    def small() -> nn.Module:
        first = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        return nn.Sequential(first, nn.Sequential(nn.Dropout(0.1), nn.Linear(16, 4)))

    def run(
        make: Callable[[], nn.Module] = small,
        steps: int = 6,
        build: Callable[..., Any] = torch.optim.AdamW,
        shape: tuple[int, ...] = (32, 8),
        each: Callable[[nn.Module], None] = lambda _: None,
        set_to_none: bool = True,
    ) -> Trained:
        torch.manual_seed(0)
        net = make()
        optimizer = build(net.parameters(), lr=0.01)
        criterion = nn.CrossEntropyLoss()
        x, y = torch.randn(shape), torch.randint(0, 4, shape[:1])
        done = Trained(net, optimizer)
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=set_to_none)
            output = net(x)
            loss = criterion(output, y)
            loss.backward()
            optimizer.step()
            done.losses.append(loss.item())
            done.outputs.append(output.detach())
            each(net)
        done.rng = torch.get_rng_state()
        return done

    return run


def _forget_breaches() -> None:
    loaded = sys.modules.get("hotlap.sameness.breach")
    if loaded is not None:
        loaded.found.clear()


@pytest.fixture(autouse=True)
def faults_end_with_their_test() -> Iterator[None]:
    """What the probe met in one test is not counted in the next of the same process."""
    yield
    loaded = sys.modules.get("hotlap.probe.boundary")
    if loaded is not None:
        loaded.faults.clear()


@pytest.fixture(autouse=True)
def breaches_end_with_their_test() -> Iterator[None]:
    """A breach counts to the end of its process, which many tests share. A loader that is collected late may declare
    one between two tests."""
    _forget_breaches()
    yield
    _forget_breaches()


_COUNTS_PAGES = """
import resource
import torch

size = 2**23

def new_pages():  # of a block that is filled, freed, and filled again
    global size
    size *= 2  # from 64 MiB: above what glibc keeps by itself, and what a gap of an earlier block would serve
    for _ in range(8):  # the gap that stays may need to be found
        torch.ones(size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(size)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(new_pages())
"""


@pytest.fixture
def new_pages() -> Callable[..., list[int]]:
    """`new_pages(statement, ...)`: the pages that a freed block costs when it is asked for again, at first and after
    each statement. In a process of its own: what others have allocated lies between blocks."""

    def count(*statements: str) -> list[int]:
        script = _COUNTS_PAGES + "".join(f"\n{each}\nprint(new_pages())" for each in statements)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        return list(map(int, done.stdout.split()))

    return count


@pytest.fixture
def fit_compute() -> Iterator[Callable[..., Any]]:
    """`fit_compute(precision="16-mixed")`: a fitter at the seams of compute. Afterwards nothing of it is left."""
    from hotlap.plan.catalogue import some_knobs
    from hotlap.probe import boundary
    from hotlap.seams import model, optimizer, process
    from hotlap.seams.fitter import Fitter

    before, fitters = _of_torch(), []

    def fit(**settings: Any) -> Fitter:
        named = {key.replace("_", "-"): value for key, value in settings.items()}
        fitter = Fitter(named, some_knobs(named))
        fitters.append(fitter)
        for seam in (process, model, optimizer):
            seam.install(fitter)
        return fitter

    yield fit
    for fitter in reversed(fitters):
        fitter.undo()
    faults = [*boundary.faults]
    boundary.faults.clear()
    assert not faults, "a test that plants a fault takes it away again"
    assert _of_torch() == before


def _of_torch() -> list[Any]:
    """What the seams of compute may replace."""
    import torch
    from torch.autograd import profiler
    from torch.optim import AdamW, Optimizer
    from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

    module = torch.nn.Module
    functions = [module.__call__, module.zero_grad, module._replicate_for_data_parallel, AdamW.__init__]
    functions += [Optimizer.__init__, Optimizer.zero_grad, torch.autograd.backward, torch.autocast.__enter__]
    functions += [
        torch.nn.Conv1d._conv_forward,
        torch.set_anomaly_enabled,
        torch.use_deterministic_algorithms,
        profiler.profile.__enter__,
    ]
    hooks = [list(_global_optimizer_pre_hooks), list(_global_optimizer_post_hooks)]
    return [*functions, *hooks, "__init_subclass__" in vars(Optimizer)]


@pytest.fixture
def compute_host() -> Callable[..., Any]:
    """A machine with a C++ compiler; words of a GPU give it one."""
    from hotlap.facts.host import Gpu, Host

    def make(**changes: Any) -> Host:
        words = {key: changes.pop(key) for key in ("bf16", "tf32", "tensor_cores") if key in changes}
        gpus = (Gpu("a gpu", 2**34, **words),) if words else ()
        plain: dict[str, Any] = {"compiler": "/usr/bin/g++", "python_headers": True, "gpus": gpus}
        return Host("Linux", "a cpu", 4, 4, 2**35, 2**34, None, None, "fork", **(plain | changes))

    return make


@pytest.fixture
def compute_timeline() -> Callable[..., Any]:
    """Steps of 100 ms: 80 in forward and backward, 20 in the optimizer. Words are those of `Runtime`, and some more."""
    from hotlap.facts import timeline as facts
    from hotlap.facts.timeline import Stage

    def make(device: str = "cpu", compiled: bool = False, **words: Any) -> facts.Timeline:
        ops, optimizers = words.pop("ops", ()), words.pop("optimizers", ())
        operators = tuple(facts.Operator(name, "", "float32", 0.5, 1.0) for name in ops)
        shares = {Stage.FORWARD: 30, Stage.BACKWARD: 50, Stage.OPTIMIZER: 20}
        stages = {stage: [ms * 1_000_000] * 10 for stage, ms in shares.items()}
        empty = [-1] * 10
        return facts.Timeline(
            rank=0,
            world=1,
            pid=1,
            ending=facts.Ending.FINISHED,
            steps=facts.Steps([0] * 10, [100_000_000] * 10, stages, empty, empty, empty, [1] * 10),
            steady_from=0,
            warmup=facts.Warmup(1.0, 0, 0.0),
            runtime=facts.Runtime(threads=2, **words),
            probe=facts.ProbeCost(0.0, 0.0, 0.0, 0),
            model=facts.ModelFacts("Net", 10, 2, 2.0, ("float32",), (device,), compiled),
            optimizers=optimizers,
            ops=facts.Ops(top=operators) if operators else None,
        )

    return make


Spawn = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Start a Python program that prints "ready" when it is; killed with all below it after the test."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str) -> subprocess.Popen[str]:
        child = subprocess.Popen([sys.executable, "-u", "-c", program], stdout=subprocess.PIPE, text=True)
        started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "ready"
        return child

    yield start
    for child in started:
        with suppress(psutil.Error):
            for process in psutil.Process(child.pid).children(recursive=True):
                with suppress(psutil.Error):
                    process.kill()
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Wait for something to become true; a generous limit turns a hang into a failure."""

    def wait(condition: Callable[[], bool], seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it did not come true"
            time.sleep(0.01)

    return wait
