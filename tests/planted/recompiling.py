"""A compiled encoder that meets a new sequence length in almost every batch."""
# planted: recompiling
# profile: --steps 60

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

random.seed(5)


class Sentences(Dataset):
    def __init__(self, count=4096):
        self.sentences = [torch.randint(1, 500, (random.randint(20, 60),)) for _ in range(count)]

    def __len__(self):
        return len(self.sentences)

    def __getitem__(self, index):
        return self.sentences[index]


def collate(sentences):
    return nn.utils.rnn.pad_sequence(sentences, batch_first=True)


class Encoder(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(500, width, padding_idx=0)
        self.layers = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):  # <- here
        hidden = self.embed(tokens)
        hidden = self.norm(hidden + self.layers(hidden))
        return hidden @ self.embed.weight.T


model = Encoder()
compiled = torch.compile(model, dynamic=False, backend="aot_eager")
loader = DataLoader(Sentences(), batch_size=4, shuffle=True, collate_fn=collate)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for tokens in loader:
    logits = compiled(tokens)
    loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
