"""A recurrent model of sensor series, unrolled by hand: one small cell for each time step."""
# planted: launch-bound
# profile: --steps 120

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

series = torch.randn(6400, 60, 4)
levels = series.mean((1, 2))
loader = DataLoader(TensorDataset(series, levels), batch_size=64, shuffle=True, drop_last=True)


class Recurrent(nn.Module):
    def __init__(self, inputs=4, width=16):
        super().__init__()
        self.width = width
        self.from_input = nn.Linear(inputs, width)
        self.from_state = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, series):
        state = series.new_zeros(len(series), self.width)
        for t in range(series.shape[1]):
            state = torch.tanh(self.from_input(series[:, t]) + self.from_state(state))  # <- here
        return self.out(state).squeeze(-1)


model = Recurrent()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)

for epoch in range(10):
    for batch, level in loader:
        loss = nn.functional.mse_loss(model(batch), level)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
