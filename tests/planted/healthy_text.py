"""Sentences sorted into buckets of like length, so that hardly anything is padded."""
# planted: healthy
# profile: --steps 20

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

random.seed(4)


class Sentences(Dataset):
    def __init__(self, count=4000):
        lengths = [random.randint(10, 80) for _ in range(count)]
        self.sentences = [torch.randint(1, 2000, (length,)) for length in lengths]

    def __len__(self):
        return len(self.sentences)

    def __getitem__(self, index):
        return self.sentences[index]


class Buckets:
    """Batches of sentences of like length, in random order."""

    def __init__(self, dataset, batch_size):
        order = sorted(range(len(dataset)), key=lambda index: len(dataset.sentences[index]))
        self.batches = [order[first : first + batch_size] for first in range(0, len(order), batch_size)]

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(random.sample(self.batches, len(self.batches)))


def collate(sentences):
    tokens = nn.utils.rnn.pad_sequence(sentences, batch_first=True)
    return {"tokens": tokens, "lengths": torch.tensor([len(sentence) for sentence in sentences])}


class LanguageModel(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.embed = nn.Embedding(2000, width, padding_idx=0)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 2000)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.layers(self.embed(tokens), mask=mask, is_causal=True))


dataset = Sentences()
loader = DataLoader(dataset, batch_sampler=Buckets(dataset, 32), collate_fn=collate)
model = LanguageModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

for epoch in range(3):
    for batch in loader:
        logits = model(batch["tokens"][:, :-1])
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1), batch["tokens"][:, 1:].flatten(), ignore_index=0
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
