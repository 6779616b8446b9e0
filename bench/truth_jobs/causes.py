"""Causes as changes of a well-written job. `weight` is what a cause costs, in steps of the job without it.

Costs are set by the time of a step (`step_ms`) and what an operation of the plant takes. Slow disks and services are
`time.sleep`: what a real one takes depends on the host. `bench/truth.py --verify` measures whether a cause holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from truth_jobs.render import Parts

STEP_MS = {
    "images": (7, 15, 60),
    "table": (3.5, 14, 54),
    "autoencoder": (2.9, 8.8, 21.5),
    "gan": (3.8, 6, 11),
    "accumulated": (3.2, 9, 27),
    "metric": (3.2, 9, 19),
    "audio": (4, 16, 50),
    "chars": (6, 17, 60),
    "reviews": (4.3, 9.6, 29),
    "series": (6.7, 17, 30),
    "graph": (4.7, 9.3, 21),
    "segments": (6, 16, 47),
    "spectra": (2.9, 6.9, 16.7),
}
ELEMENT_US = 0.12  # one value in a list comprehension with a little arithmetic
KEPT_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**34)}
UNROLLED = """
state, states = x.new_zeros(len(x), self.writer.in_features), []
for moment in range(x.shape[1]):  # PLANT
    given, known = self.from_input(x[:, moment]).chunk(3, -1), self.from_state(state).chunk(3, -1)
    reset, update = torch.sigmoid(given[0] + known[0]), torch.sigmoid(given[1] + known[1])
    fresh = torch.tanh(given[2] + reset * known[2])
    state = fresh + update * (state - fresh)
    states.append(state)
states = torch.stack(states, 1)
""".strip()
Change = Callable[[Parts, float], None]


def step_ms(parts: Parts) -> float:
    return float(STEP_MS[parts.family.name][parts.size])


def elements(parts: Parts) -> int:
    """Values of one item."""
    numbers = {key: int(value) for key, value in parts.numbers.items()}
    known = {"images": 3072, "table": 96, "autoencoder": 256, "gan": 128, "accumulated": 160, "metric": 200}
    known |= {"reviews": 50, "graph": 1600}
    if parts.family.name in known:
        return known[parts.family.name]
    if parts.family.name == "segments":
        return numbers["side"] ** 2
    return 6 * (numbers["length"] + 1) if parts.family.name == "series" else numbers.get("window") or 65


def share(parts: Parts, weight: float, each_us: float) -> tuple[int, int]:
    """How many values of an item are worked on, and how often, so that a batch costs `weight` steps."""
    wanted = weight * step_ms(parts) * 1000 / each_us / parts.batch
    size = elements(parts)
    return min(size, max(1, round(wanted))), max(1, round(wanted / size))


def shake(parts: Parts) -> str:
    """Items that differ at every visit: nothing to keep from one epoch to the next."""
    if parts.family.kind in ("dense", "graph"):
        return "x = x + 0.01 * torch.randn_like(x)"
    return "x = torch.where(torch.rand(x.shape) < 0.02, 1, x)"


def python_work(parts: Parts, weight: float, name: str, gain: str, add: str = "") -> str:
    """A function that works on the values of an item in Python lists."""
    upto, rounds = share(parts, weight, ELEMENT_US)
    back = "torch.tensor(values, dtype=x.dtype)"
    if parts.family.kind in ("dense", "graph"):
        work, start = f"[gain * value + 0.01 * (value > 2.0){add} for value in values]", "x.flatten()"
    else:
        work, start = "[max(1, value) if gain > 0 else value for value in values]", "x"
    return f"""
def {name}(x):  # PLANT
    gain = {gain}
    values = {start}[:{upto}].tolist()
    for _ in range({rounds}):
        values = {work}
    x = x.clone()
    x.view(-1)[:{upto}] = {back}
    return x
"""


def item_cpu(parts: Parts, weight: float) -> None:
    workers = (0, 2)[parts.seed % 2]
    parts.add("imports", "import random")
    cost = weight if not workers else 3 * weight
    parts.add("data", python_work(parts, cost, "augment", "random.uniform(0.8, 1.2)"))
    parts.add("item", "x = augment(x)")
    if workers:
        parts.loader |= {"num_workers": workers, "persistent_workers": True}
    else:
        parts.sites.add("loader")


def item_io(parts: Parts, weight: float) -> None:
    parts.add("imports", "import time")
    seconds = 2 * (1 + weight) * step_ms(parts) / 1000 / parts.batch
    parts.add("item", f"time.sleep({seconds:.5f})  # PLANT\n{shake(parts)}")
    parts.loader |= {"num_workers": 2, "persistent_workers": True}
    parts.sites.add("loader")


def collate(parts: Parts, weight: float) -> None:
    work = python_work(parts, weight, "cleaned", "1.0")
    if parts.family.name == "reviews":
        parts.slots["pad"] = "items = [(cleaned(tokens), stars) for tokens, stars in items]\n$padded"
        parts.slots["padded"] = (
            "tokens = nn.utils.rnn.pad_sequence([tokens for tokens, _ in items], batch_first=True)"
        )
        parts.add("data", work)
        return
    parts.add("imports", "from torch.utils.data import default_collate")
    single = "," not in parts.family.batch
    rows = (
        "[cleaned(item) for item in items]" if single else "[(cleaned(item[0]), *item[1:]) for item in items]"
    )
    parts.add("data", f"{work}\n\ndef assemble(items):\n    return default_collate({rows})  # PLANT\n")
    parts.slots["collate_fn"] = "assemble"


def few_workers(parts: Parts, weight: float) -> None:
    parts.add("imports", "import time")
    seconds = min(weight, 0.9) * step_ms(parts) / 1000 / parts.batch
    parts.add("item", f"time.sleep({seconds:.5f})  # PLANT\n{shake(parts)}")
    parts.sites.add("loader")


def more_workers(parts: Parts, _: float) -> None:
    parts.loader |= {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 4}


def many_workers(parts: Parts, _: float) -> None:
    parts.loader |= {"num_workers": 8, "persistent_workers": True}
    parts.sites.add("loader")


def restarts(parts: Parts, _: float) -> None:
    parts.add("imports", "import time")
    parts.epoch = 5
    parts.add("item", f"time.sleep({0.5 * step_ms(parts) / 1000 / parts.batch:.5f})\n{shake(parts)}")
    parts.loader |= {"num_workers": 2}
    parts.sites.add("loader")


def stays(parts: Parts, _: float) -> None:
    parts.loader |= {"persistent_workers": True}


def shallow(parts: Parts, _: float) -> None:
    parts.add("imports", "import time")
    stall, rare = 9 * step_ms(parts) / 1000, 13 * parts.batch
    parts.add("item", f"time.sleep({stall:.4f} if index % {rare} == 0 else 0.00005)\n{shake(parts)}")
    parts.loader |= {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 1}
    parts.sites.add("loader")


def deep(parts: Parts, _: float) -> None:
    parts.loader |= {"prefetch_factor": 12}


def repeated(parts: Parts, weight: float) -> None:
    parts.epoch = 25
    parts.add("data", python_work(parts, weight, "decoded", "0.5"))
    parts.add("item", "x = decoded(x)")
    parts.sites.add("item")


def element_loop(parts: Parts, weight: float) -> None:
    count = max(4, round(weight * step_ms(parts) * 1000 / 5.0))
    dense = parts.family.kind == "dense"
    if dense and parts.seed % 2:
        clip = f"flat = x.flatten()\nfor place in range({count}):  # PLANT\n"
        clip += "    if flat[place % len(flat)] > 3.0:\n        flat[place % len(flat)] = 3.0\nx = flat.view_as(x)"
        parts.add("forward", clip)
        return
    first = parts.family.batch.split(",")[0]
    parts.add("state", "counts = [0] * 10")
    count = f"for value in {first}.flatten()[:1].expand({count}):  # PLANT\n    counts[int(value) % 10] += 1"
    parts.add("after_loss", count)


def tiny_operators(parts: Parts, weight: float) -> None:
    if parts.family.name == "series":
        own = "self.from_input, self.from_state = nn.Linear(6, 3 * width), nn.Linear(width, 3 * width)"
        model = parts.family.sections["model"].replace(
            "self.reader = nn.GRU(6, width, batch_first=True)", own
        )
        parts.slots["model_code"] = model.replace("states, _ = self.reader(x)", "$unrolled")
        parts.slots["unrolled"] = UNROLLED
        parts.numbers |= {"width": "16", "batch": "16", "length": str((32, 64, 128)[parts.size])}
        return
    heads = max(8, round(weight * step_ms(parts) * 1000 / 75))
    parts.add("init", f"self.gates = nn.ModuleList([nn.Linear(4, 4) for _ in range({heads})])")
    parts.add(
        "forward",
        "state = x.flatten(1)[:, :4]\nfor gate in self.gates:  # PLANT\n    state = torch.tanh(gate(state))\n"
        "x = x + state.mean()",
    )


def large_operators(parts: Parts, _: float) -> None:
    parts.slots |= {"model_code": parts.family.sections["model"], "init": "", "forward": ""}


def small_batch(parts: Parts, _: float) -> None:
    parts.numbers |= {"batch": "2", "width": str(6 * int(parts.numbers["width"]))}
    if parts.family.name == "table":
        parts.numbers["width"] = str((1200, 1800, 2600)[parts.size])
    parts.sites |= {"loader", "batch"}
    parts.epoch = 4000


def larger_batch(parts: Parts, _: float) -> None:
    parts.numbers["batch"] = "32"
    parts.epoch, parts.samples = 250, 16.0


def pointwise(parts: Parts, weight: float) -> None:
    values = parts.batch * elements(parts)
    rounds = max(3, round(weight * step_ms(parts) * 1e6 / values / 9))
    parts.add("init", "self.drive = nn.Parameter(torch.ones(()))")
    parts.add(
        "forward",
        f"speed = torch.zeros_like(x)\nfor _ in range({min(rounds, 24)}):\n"
        "    force = torch.cos(x) * self.drive - 0.1 * speed + 0.01 * x * x\n"
        "    speed = speed + 0.05 * force\n    x = x + 0.05 * torch.tanh(speed)",
    )
    parts.sites |= {"forward", "build"}


def compiled(parts: Parts, _: float) -> None:
    parts.add("prepare_model", "$model.compile()")


def recompiling(parts: Parts, _: float) -> None:
    parts.add("imports", "import torch._dynamo")
    parts.add(
        "setup",
        "torch._dynamo.config.recompile_limit = 100_000\ntorch._dynamo.config.accumulated_recompile_limit = 100_000",
    )
    parts.add("init", "self.calls = 0")
    parts.add("forward", "self.calls += 1  # PLANT\nx = x * min(1.0, self.calls / 100_000)  # PLANT")
    parts.add("prepare_model", '$model.compile(backend="eager")  # PLANT')
    parts.sites |= {"forward", "build"}


def steady(parts: Parts, _: float) -> None:
    parts.slots["forward"] = ""


def float64(parts: Parts, _: float) -> None:
    parts.add("setup", "torch.set_default_dtype(torch.float64)  # PLANT")
    parts.sites |= {"forward", "build"}


def unfused(parts: Parts, weight: float) -> None:
    if parts.seed % 3:
        values = round(weight * step_ms(parts) * 1e6 / 6)
        parts.add("init", f"self.memory = nn.Parameter(torch.zeros({values}))")
        parts.add("forward", "x = x + self.memory.mean()")
    else:
        tensors = max(40, round(weight * step_ms(parts) * 1000 / 20))
        parts.add("init", f"self.biases = nn.ParameterList([torch.zeros(8) for _ in range({tensors})])")
        parts.add("forward", "x = x + torch.cat(list(self.biases)).mean()")
    parts.algorithm = ("torch.optim.Adam", "lr=0.001, foreach=False")
    parts.sites.add("optimizer")


def fused(parts: Parts, _: float) -> None:
    parts.algorithm = ("torch.optim.Adam", "lr=0.001, fused=True")


def padding(parts: Parts, _: float) -> None:
    parts.slots["lengths"] = ""
    parts.slots["pad"] = (
        "tokens = torch.zeros(len(items), $longest, dtype=torch.long)  # PLANT\n"
        "for row, (review, _) in enumerate(items):  # PLANT\n    tokens[row, : len(review)] = review"
    )
    parts.sites.add("loader")


def trimmed(parts: Parts, _: float) -> None:
    parts.slots["pad"] = (
        "tokens = nn.utils.rnn.pad_sequence([tokens for tokens, _ in items], batch_first=True)"
    )


def anomaly(parts: Parts, _: float) -> None:
    if parts.style == "lightning":
        parts.add("trainer_args", "detect_anomaly=True,  # PLANT")
        parts.sites.add("trainer")
    else:
        parts.add("setup", "torch.autograd.set_detect_anomaly(True)  # PLANT")


@dataclass(frozen=True)
class Cause:
    """`plant` makes a job slow, `mend` is the remedy by hand where it is more than leaving the plant out."""

    name: str
    plant: Change
    mend: Change | None = None
    accept: tuple[str, ...] = ()  # beside its name
    plan: dict[str, object] = field(default_factory=dict)
    placed: bool = True
    proof: str = "speed"
    steps: int = 60  # of a run that verifies it
