"""Two ranks that average their gradients by hand, tensor after tensor, when backward is done."""
# planted: comm-exposed
# profile: --steps 25
# launcher: torchrun --nproc_per_node 2

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())

rows = TensorDataset(torch.randn(8000, 64), torch.randint(0, 10, (8000,)))
loader = DataLoader(rows, batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
for parameter in model.parameters():
    dist.broadcast(parameter.data, 0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def average_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


for epoch in range(10):
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
dist.destroy_process_group()
