"""MMEngine: a model, a metric and a Runner that trains by epochs of ten steps, validates, logs and saves."""

import argparse
import random

import numpy as np
import torch
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--dump")
args = parser.parse_args()


class Classifier(BaseModel):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(256, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 10)
        )

    def forward(self, inputs, labels, mode):
        scores = self.net(inputs)
        if mode == "loss":
            return {"loss": nn.functional.cross_entropy(scores, labels)}
        return [(row, label) for row, label in zip(scores.argmax(1), labels, strict=True)]


class Accuracy(BaseMetric):
    def process(self, data_batch, data_samples):
        self.results += [int(row == label) for row, label in data_samples]

    def compute_metrics(self, results):
        return {"accuracy": sum(results) / len(results)}


random.seed(0), np.random.seed(0), torch.manual_seed(0)
x, y = torch.randn(2048, 256), torch.randint(0, 10, (2048,))
runner = Runner(
    model=Classifier(),
    work_dir="work_dir",
    train_dataloader=DataLoader(TensorDataset(x[:1280], y[:1280]), batch_size=128, shuffle=True),
    val_dataloader=DataLoader(TensorDataset(x[1280:], y[1280:]), batch_size=256),
    train_cfg={"by_epoch": True, "max_epochs": args.steps // 10, "val_interval": 2},
    val_cfg={},
    val_evaluator={"type": Accuracy},
    optim_wrapper={"optimizer": {"type": "AdamW", "lr": 1e-3}, "clip_grad": {"max_norm": 1.0}},
    param_scheduler={"type": "CosineAnnealingLR", "by_epoch": False, "T_max": args.steps},
    default_hooks={
        "logger": {"type": "LoggerHook", "interval": 5},
        "checkpoint": {"type": "CheckpointHook", "interval": 2},
    },
    randomness={"seed": 0},
)
runner.train()

if args.dump:
    state = {"params": runner.model.state_dict(), "rng": torch.get_rng_state()}
    torch.save(state | {"python": random.getstate(), "numpy": np.random.get_state()}, args.dump)
