"""A character model that cuts its own batches out of the text, without a DataLoader."""
# planted: input-starved
# profile: --steps 90

import random

import torch
from torch import nn

BLOCK, BATCH = (
    4096,
    4,
)  # long pieces: what computes for less than 0.1 ms at a time is sampled too rarely (ADR 24)

random.seed(1)
torch.manual_seed(1)
text = "".join(random.choices("etaoin shrdlu,.", k=400_000))
vocabulary = {character: index for index, character in enumerate(sorted(set(text)))}


def encode(piece):
    return torch.tensor([vocabulary[character] for character in piece])  # <- here


def get_batch():
    starts = [random.randrange(len(text) - BLOCK - 1) for _ in range(BATCH)]
    inputs = torch.stack([encode(text[start : start + BLOCK]) for start in starts])
    targets = torch.stack([encode(text[start + 1 : start + BLOCK + 1]) for start in starts])
    return inputs, targets


class CharModel(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Embedding(len(vocabulary), width)
        self.mix = nn.Conv1d(width, width, 5, padding=4)
        self.head = nn.Linear(width, len(vocabulary))

    def forward(self, tokens):
        hidden = self.embed(tokens).transpose(1, 2)
        hidden = torch.relu(self.mix(hidden)[..., : tokens.shape[1]])
        return self.head(hidden.transpose(1, 2))


model = CharModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

for iteration in range(2000):
    x, y = get_batch()
    logits = model(x)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if iteration % 100 == 0:
        print(f"iteration {iteration}: loss {loss.item():.3f}")
