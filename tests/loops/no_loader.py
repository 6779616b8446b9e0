"""A small language model without any DataLoader: `get_batch` cuts windows out of a memory-mapped file."""

import argparse
import random

import numpy as np
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--dump")
args = parser.parse_args()

random.seed(0), np.random.seed(0), torch.manual_seed(0)
batch_size, block_size, vocabulary, width = 8, 64, 256, 128
np.random.randint(0, vocabulary, 200_000).astype(np.uint16).tofile("train.bin")


def get_batch():
    data = np.memmap("train.bin", dtype=np.uint16, mode="r")
    starts = torch.randint(len(data) - block_size - 1, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i : i + block_size].astype(np.int64)) for i in starts])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + block_size].astype(np.int64)) for i in starts])
    return x, y


class TinyGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.block = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, dropout=0.1)
        self.head = nn.Linear(width, vocabulary)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(block_size))

    def forward(self, tokens, targets):
        logits = self.head(self.block(self.embed(tokens), src_mask=self.mask, is_causal=True))
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


model = TinyGPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
x, y = get_batch()
for step in range(1, args.steps + 1):
    loss = model(x, y)
    x, y = get_batch()  # the next batch is cut while the device computes
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"iter {step}: loss {loss.item():.4f}")

if args.dump:
    state = {"params": model.state_dict(), "rng": torch.get_rng_state()}
    torch.save(state | {"python": random.getstate(), "numpy": np.random.get_state()}, args.dump)
