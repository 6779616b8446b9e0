"""Causes beside the step itself: logs, validation, checkpoints, monitors, memory, stalls. And the list of all."""

from __future__ import annotations

from truth_jobs import causes as by
from truth_jobs.causes import KEPT_MEMORY, Cause, elements, python_work, shake, step_ms
from truth_jobs.render import Parts


def logging(parts: Parts, weight: float) -> None:
    if parts.seed % 2:
        parts.add("imports", "from torch.utils.tensorboard import SummaryWriter")
        parts.add("state", 'writer = SummaryWriter("runs")')
        count = max(1, round(weight * step_ms(parts) / 1.5))
        parts.add(
            "after",
            f"for number, weight in zip(range({count}), itertools.cycle($model.parameters())):\n"
            '    writer.add_histogram(f"weights/{number}", weight.detach().flatten()[:2000], step)  # PLANT',
        )
        parts.add("imports", "import itertools")
        return
    count = max(50, round(weight * step_ms(parts) * 1000 / 0.8))
    parts.add("imports", "import json")
    parts.add("state", 'log = open("log.jsonl", "w")')
    parts.add(
        "after",
        f"weights = torch.cat([each.detach().flatten() for each in $model.parameters()])[:{count}].tolist()  # PLANT\n"
        'print(json.dumps({"step": step, "weights": weights}), file=log, flush=True)  # PLANT',
    )


def validation(parts: Parts, weight: float) -> None:
    every = 10
    batches = max(2, round(3 * weight * every))  # each takes about a third of a training step
    loss = "\n".join(f"            {line}" for line in parts.family.sections["loss"].split("\n"))
    loss = loss.replace("$model", "network")
    collate = parts.family.sections.get("collate", "None")
    held = f"DataLoader({parts.family.sections['dataset'].replace('$count', str(batches * parts.batch))}"
    held += f", batch_size={parts.batch}, collate_fn={collate})"
    if parts.style == "lightning":
        step = parts.family.sections["loss"].replace("$model", "self.net").replace("\n", "\n    ")
        parts.slots["hook"] = (
            f"def validation_step(self, batch, batch_idx):  # PLANT\n    $names = batch\n    {step}\n"
        )
        parts.add("trainer_args", f"val_check_interval={every},\nnum_sanity_val_steps=0,")
        parts.slots["fit_more"] = f", {held}"
        parts.sites.add("trainer")
        return
    if parts.style == "trainer":
        counts = str(batches * parts.batch)
        parts.add("trainer_args", f'eval_strategy="steps",\neval_steps={every},\nprediction_loss_only=True,')
        parts.add("trainer_args", f'label_names=["{parts.family.batch.split(", ")[-1]}"],')
        parts.add("trainer_args", f"per_device_eval_batch_size={parts.batch},")
        parts.slots["fit_more"] = (
            f"eval_dataset={parts.family.sections['dataset'].replace('$count', counts)},"
        )
        parts.sites.add("trainer")
        return
    parts.add(
        "helpers",
        f"def evaluate(network, held):  # PLANT\n    network.eval()\n    total = 0.0\n    with torch.no_grad():\n"
        f"        for {parts.family.batch} in held:\n{loss}\n            total += loss.item()\n"
        "    network.train()\n    return total / len(held)\n",
    )
    parts.add("state", f"held_out, validated = {held}, []")
    parts.add("after", f"if step % {every} == 0:  # PLANT\n    validated.append(evaluate($model, held_out))")


def checkpoints(parts: Parts, weight: float) -> None:
    if parts.style == "lightning":
        parts.add("imports", "from lightning.pytorch.callbacks import ModelCheckpoint")
        parts.add(
            "trainer_args",
            'callbacks=[ModelCheckpoint("saved", every_n_train_steps=2, save_top_k=1)],  # PLANT',
        )
        parts.sites.add("trainer")
    elif parts.style == "trainer":
        parts.add("trainer_args", 'save_strategy="steps",\nsave_steps=2,\nsave_total_limit=1,')
        parts.sites.add("trainer")
    else:
        copies = max(1, round(weight * step_ms(parts) / 8))
        parts.add(
            "after",
            f"if step % 2 == 0:\n    for copy in range({copies}):\n"
            '        torch.save({"model": $model.state_dict(), "step": step}, f"model_{copy}.pt")  # PLANT',
        )


def monitoring(parts: Parts, weight: float) -> None:
    wanted = max(2, round(weight * step_ms(parts) / 1.4))
    parts.add(
        "helpers",
        "def spread(network):  # PLANT\n"
        "    weights = torch.cat([each.detach().flatten() for each in network.parameters()])\n"
        "    picked = weights[torch.randint(len(weights), (20_000,))]\n"
        f"    return [torch.quantile(picked, share / {wanted}).item() for share in range({wanted})]\n",
    )
    parts.add("state", "spreads = []")
    parts.add("after", "spreads.append(spread($model))  # PLANT")


def garbage(parts: Parts, weight: float) -> None:
    """A full collection looks at every object of torch too: about 70 ms."""
    every = max(1, round(70 / (weight * step_ms(parts))))
    parts.add("imports", "import gc")
    parts.add("helpers", 'catalogue = [{"number": number, "tags": [number % 7]} for number in range(10_000)]')
    parts.add("after", f"if step % {every} == 0:\n    gc.collect()  # PLANT")


def churn(parts: Parts, _: float) -> None:
    inside = 1 if parts.family.name == "segments" else 3
    wide = (64, 96, 128)[parts.size]
    wider = f"nn.Sequential(nn.Conv2d({inside}, {wide}, 1), nn.ReLU(), nn.Conv2d({wide}, {inside}, 1))"
    parts.add("init", f"self.wide = {wider}")
    parts.add("forward", "x = x + self.wide(x)")
    parts.numbers["batch"] = str(4 * parts.batch)
    parts.environment = {"MALLOC_MMAP_MAX_": "", "MALLOC_TRIM_THRESHOLD_": ""}


def kept(parts: Parts, _: float) -> None:
    parts.environment = dict(KEPT_MEMORY)


def growth(parts: Parts, _: float) -> None:
    parts.add("state", "seen = []")
    parts.add("after_loss", f"seen.append({parts.family.batch.split(',')[0]}.clone())  # PLANT")


def outliers(parts: Parts, weight: float) -> None:
    parts.add("imports", "import itertools\nimport time")
    stall = 41 * 0.8 * weight * step_ms(parts) / 1000
    parts.add("helpers" if parts.seed % 2 else "imports", "requests = itertools.count(1)")
    if parts.seed % 2:
        parts.add("after", f"if next(requests) % 41 == 0:\n    time.sleep({stall:.3f})  # PLANT")
        return
    retry = (
        f"if next(requests) % {41 * parts.batch} == 0:\n    time.sleep({stall:.3f})  # PLANT\n{shake(parts)}"
    )
    parts.add("item", retry)


def gathers(parts: Parts, weight: float) -> None:
    if parts.family.name == "graph":
        parts.slots["exchange"] = (
            "messages = x[sources]  # PLANT\n"
            "return torch.zeros_like(x).index_put((targets,), messages, accumulate=True)  # PLANT"
        )
        return
    values = parts.batch * elements(parts)
    times = max(1, round(weight * step_ms(parts) * 1e6 / values / 45))
    parts.add("init", f"self.tilt = nn.Parameter(torch.ones({elements(parts)}))")
    parts.add("init", f'self.register_buffer("order", torch.randperm({elements(parts)}))')
    parts.add(
        "forward",
        f"flat = x.flatten(1) * self.tilt\nfor _ in range({times}):\n    flat = flat[:, self.order]  # PLANT\n"
        "x = flat.view_as(x)",
    )


def selected(parts: Parts, _: float) -> None:
    if parts.family.name == "graph":
        parts.slots["exchange"] = (
            "return torch.zeros_like(x).index_add(0, targets, x.index_select(0, sources))"
        )
    forward = parts.slots["forward"].replace(
        "flat[:, self.order]  # PLANT", "flat.index_select(1, self.order)"
    )
    parts.slots["forward"] = forward


def starved(parts: Parts, weight: float) -> None:
    parts.add("imports", "from torch.utils.data import default_collate")
    parts.add("data", python_work(parts, weight, "prepared", "1.0"))
    parts.add(
        "data",
        "\n\nclass Batches:\n    def __init__(self, dataset, batch_size):\n"
        "        self.dataset, self.size = dataset, batch_size\n\n    def __iter__(self):\n"
        "        for start in range(0, len(self.dataset), self.size):\n"
        "            items = [self.dataset[start + place] for place in range(self.size)]\n$gathered",
    )
    single = "," not in parts.family.batch
    rows = (
        "[prepared(item) for item in items]"
        if single
        else "[(prepared(item[0]), *item[1:]) for item in items]"
    )
    parts.slots["gathered"] = f"            yield default_collate({rows})  # PLANT"
    parts.slots["loader_class"] = "Batches"
    parts.loader = {}
    parts.add("item", shake(parts))


ALL = [
    Cause("item-cpu-bound", by.item_cpu, accept=("workers-too-few",)),
    Cause("item-io-bound", by.item_io, accept=("workers-too-few",)),
    Cause("collate-bound", by.collate),
    Cause("workers-too-few", by.few_workers, by.more_workers, ("item-io-bound",), {"num-workers": 2}),
    Cause("workers-too-many", by.many_workers, plan={"num-workers": 0}),
    Cause("workers-restart", by.restarts, by.stays, plan={"persistent-workers": True}),
    Cause("prefetch-shallow", by.shallow, by.deep, plan={"prefetch-factor": 12}, steps=110),
    Cause("repeated-work", by.repeated, plan={"cache-dataset": "memory"}),
    Cause("input-starved", starved, accept=("item-cpu-bound",)),
    Cause("element-loop", by.element_loop),
    Cause("launch-bound", by.tiny_operators, by.large_operators, accept=("batch-too-small", "uncompiled")),
    Cause("batch-too-small", by.small_batch, by.larger_batch, plan={"batch-size": 32}),
    Cause("uncompiled", by.pointwise, by.compiled, plan={"compile": "default"}),
    Cause("recompiling", by.recompiling, by.steady, steps=40),
    Cause("float64-compute", by.float64, plan={"single-precision": True}),
    Cause("optimizer-unfused", by.unfused, by.fused, plan={"fused-optimizer": "fused"}),
    Cause("padding-waste", by.padding, by.trimmed, plan={"bucketing": "rows"}),
    Cause("debug-mode-on", by.anomaly, plan={"debug-mode-off": True}),
    Cause("logging-heavy", logging, accept=("monitoring-heavy",)),
    Cause("validation-heavy", validation),
    Cause("checkpoint-heavy", checkpoints, steps=50),
    Cause("monitoring-heavy", monitoring, steps=50),
    Cause("gc-pauses", garbage, steps=50),
    Cause("memory-churn", churn, kept, plan={"keep-memory": True}, placed=False, steps=40),
    Cause("memory-growth", growth, placed=False, proof="memory"),
    Cause("step-outliers", outliers, steps=170),
    Cause("gather-heavy", gathers, selected),
]
CAUSES = {each.name: each for each in ALL}
