"""MMEngine: trains under whatever plan there is, and writes down how its Runner was set and what was called."""

import json
from collections import Counter
from pathlib import Path

import torch
from mmengine.evaluator import BaseMetric
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

calls = Counter()


class Net(BaseModel):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 1)

    def forward(self, inputs, labels, mode):
        calls["training" if mode == "loss" else "validation"] += 1
        if mode == "loss":
            return {"loss": nn.functional.mse_loss(self.net(inputs), labels)}
        return list(self.net(inputs))


class Mean(BaseMetric):
    def process(self, data_batch, data_samples):
        self.results += [float(each.mean()) for each in data_samples]

    def compute_metrics(self, results):
        return {"mean": sum(results) / len(results)}


class Monitor(Hook):
    def after_train_iter(self, runner, **kwargs):
        calls["monitor"] += 1
        torch.randn(200_000, generator=torch.Generator().manual_seed(0)).sort()


class Counted(torch.optim.SGD):
    def step(self, closure=None):
        calls["steps"] += 1
        return super().step(closure)


torch.manual_seed(0)
x, y = torch.randn(128, 8), torch.randn(128, 1)
model = Net()
runner = Runner(
    model=model,
    work_dir="work_dir",
    train_dataloader=DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True),
    val_dataloader=DataLoader(TensorDataset(x[:40], y[:40]), batch_size=4),
    train_cfg={"by_epoch": True, "max_epochs": 4, "val_interval": 1},
    val_cfg={},
    val_evaluator={"type": Mean},
    optim_wrapper={"optimizer": {"type": Counted, "lr": 0.1}, "accumulative_counts": 2},
    param_scheduler={"type": "ExponentialLR", "by_epoch": False, "gamma": 0.9},
    default_hooks={
        "logger": {"type": "LoggerHook", "interval": 1},
        "checkpoint": {"type": "CheckpointHook", "interval": 1},
    },
    custom_hooks=[Monitor()],
    randomness={"seed": 0},
    log_level="ERROR",
)
runner.train()
logger = next(each for each in runner._hooks if type(each).__name__ == "LoggerHook")
Path("seen.json").write_text(
    json.dumps(
        {
            "calls": calls,
            "log_every": logger.interval,
            "saved": sorted(each.name for each in Path("work_dir").glob("*.pth")),
            "scheduled": runner.param_schedulers[0].last_step,
            "keys": sorted(torch.load("work_dir/epoch_4.pth", weights_only=False)["state_dict"]),
        }
    )
)
