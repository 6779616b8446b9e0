"""Recommendations: large embedding tables, small batches of ratings, and Adam over every row of the tables."""
# planted: optimizer-unfused
# profile: --steps 40

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

USERS, FILMS, WIDTH = 30_000, 20_000, 64


class Factorise(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(USERS, WIDTH)
        self.films = nn.Embedding(FILMS, WIDTH)
        self.score = nn.Sequential(nn.Linear(2 * WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, user, film):
        return self.score(torch.cat([self.users(user), self.films(film)], dim=1)).squeeze(1)


count = 100_000
ratings = TensorDataset(
    torch.randint(0, USERS, (count,)), torch.randint(0, FILMS, (count,)), torch.rand(count) * 5
)
loader = DataLoader(ratings, batch_size=256, shuffle=True)
model = Factorise()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-6)  # <- here

for epoch in range(2):
    for user, film, rating in loader:
        loss = nn.functional.mse_loss(model(user, film), rating)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
