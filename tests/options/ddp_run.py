"""Two ranks with gloo: wraps a model with BatchNorm, trains, and writes down how it was wrapped."""

import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
train_loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
norm = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(8))
plain = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Linear(8, 8))
net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
model = DistributedDataParallel(net, find_unused_parameters=True, bucket_cap_mb=25)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
changes = 0
for x, y in train_loader:
    before = net[0].weight.clone()
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    changes += not torch.equal(before, net[0].weight)
both = [torch.zeros_like(net[0].weight) for _ in range(2)]
dist.all_gather(both, net[0].weight.detach())
if dist.get_rank() == 0:
    seen = {
        "bucket_mb": model.bucket_bytes_cap / 2**20,
        "view": model.gradient_as_bucket_view,
        "static": model.static_graph,
        "norm": type(norm).__name__,
        "plain": type(plain).__name__,
        "same": torch.equal(*both),
        "changes": changes,
        "keys": sorted(net.state_dict()),
    }
    Path("seen.json").write_text(json.dumps(seen))
dist.destroy_process_group()
