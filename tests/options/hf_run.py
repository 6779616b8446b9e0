"""Hugging Face Trainer: trains under whatever plan there is, and writes down how it was set and what was called."""

import json
from collections import Counter
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

calls, rates = Counter(), []


class Rows(Dataset):
    def __init__(self, rows):
        self.x = torch.randn(rows, 8, generator=torch.Generator().manual_seed(rows))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index], "labels": self.x[index].sum()}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 1)

    def forward(self, x, labels):
        calls["training" if self.training else "validation"] += 1
        calls["bf16"] += torch.is_autocast_enabled("cpu")
        return {"loss": nn.functional.mse_loss(self.net(x)[:, 0], labels)}


class Monitor(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        calls["monitor"] += 1
        torch.randn(200_000, generator=torch.Generator().manual_seed(0)).sort()

    def on_epoch_end(self, args, state, control, **kwargs):
        calls["monitor epochs"] += 1


class Rate(torch.optim.SGD):
    """Notes the rate that each of its steps is made with."""

    def step(self, closure=None):
        rates.append(self.param_groups[0]["lr"])
        return super().step(closure)


torch.manual_seed(0)
model = Net()
optimizer = Rate(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
args = TrainingArguments(
    output_dir="out",
    num_train_epochs=2,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    logging_steps=1,
    eval_strategy="epoch",
    save_strategy="epoch",
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
)
trainer = Trainer(
    model,
    args,
    train_dataset=Rows(128),
    eval_dataset=Rows(64),
    callbacks=[Monitor()],
    optimizers=(optimizer, schedule),
)
trainer.train()
Path("seen.json").write_text(
    json.dumps(
        {
            "calls": calls,
            "steps": trainer.state.global_step,
            "logged": len([each for each in trainer.state.log_history if "loss" in each]),
            "evaluated": [each["step"] for each in trainer.state.log_history if "eval_loss" in each],
            "saved": sorted(each.name for each in Path("out").iterdir()),
            "rates": rates,
            "rate": optimizer.param_groups[0]["lr"],
        }
    )
)
