"""Two ranks; only the first one writes a picture of the predictions in every step, and both wait for it."""
# planted: straggler-rank
# profile: --steps 60
# launcher: torchrun --nproc_per_node 2

import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])

torch.manual_seed(0)
x, y = torch.randn(16_000, 64), torch.randn(16_000, 64)
data = TensorDataset(x, y)
loader = DataLoader(data, batch_size=64, sampler=DistributedSampler(data))
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def picture(prediction):
    values = prediction.detach().numpy()
    return np.histogram2d(np.repeat(values[:, 0], 400), np.repeat(values[:, 1], 400), bins=80)[0]


for epoch in range(10):
    loader.sampler.set_epoch(epoch)
    for inputs, targets in loader:
        prediction = model(inputs)
        loss = nn.functional.mse_loss(prediction, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            np.save("prediction.npy", picture(prediction))
dist.destroy_process_group()
