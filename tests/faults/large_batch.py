"""A loop whose activations need more memory than it is allowed with its batch, and that resumes if asked to.

python large_batch.py --batch 64 [--extra-mb 100] [--fail-from STEP] [--kill-above SIZE] [--resume]
"""

import argparse
import json
import os
import signal
from pathlib import Path

import torch
from little_memory import allow
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=64)
parser.add_argument(
    "--extra-mb", type=int, default=0, help="that is to be had beside what is used before training"
)
parser.add_argument(
    "--fail-from", type=int, default=0, help="steps that are made before much memory is needed"
)
parser.add_argument(
    "--kill-above", type=int, default=0, help="killed by SIGKILL with batches larger than this"
)
parser.add_argument("--kill-from", type=int, default=0, help="steps that are made before")
parser.add_argument("--resume", action="store_true")
args = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
WIDTH = 500_000  # of the activations: 2 MB a sample
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
first = 0
if args.resume and Path("last.pt").exists():
    state = torch.load("last.pt")
    model.load_state_dict(state["model"])
    first = state["step"]
train_loader = DataLoader(TensorDataset(torch.randn(256, 4), torch.randn(256, 1)), batch_size=args.batch)
sizes = []
for step, (x, y) in enumerate(train_loader, start=1):
    sizes.append(len(x))
    if args.kill_above and len(x) > args.kill_above and step > args.kill_from:
        os.kill(os.getpid(), signal.SIGKILL)
    if args.extra_mb and step == args.fail_from + 1:
        allow(args.extra_mb)
    optimizer.zero_grad()
    hidden = model(x)
    if step > args.fail_from:
        hidden = hidden + 0 * hidden.expand(len(x), WIDTH).contiguous().sum(1, keepdim=True)
    nn.functional.mse_loss(hidden, y).backward()
    optimizer.step()
    if step == 2:
        torch.save({"model": model.state_dict(), "step": step}, "last.pt")
seen = {"sizes": sizes, "first": first, "parameters": [p.tolist() for p in model.parameters()]}
Path("seen.json").write_text(json.dumps(seen))
