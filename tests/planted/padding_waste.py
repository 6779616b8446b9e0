"""Support tickets of very unlike length, all padded to the longest that the model takes."""
# planted: padding-waste
# profile: --steps 25

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MOST = 128


class Tickets(Dataset):
    def __init__(self, count=2000):
        rng = np.random.default_rng(0)
        lengths = np.clip(rng.lognormal(3.0, 0.7, count), 4, MOST).astype(int)
        self.tickets = [torch.from_numpy(rng.integers(2, 3000, length)) for length in lengths]

    def __len__(self):
        return len(self.tickets)

    def __getitem__(self, index):
        tokens = self.tickets[index]
        padded = torch.zeros(MOST, dtype=torch.long)
        padded[: len(tokens)] = tokens
        return {"input_ids": padded, "attention_mask": (padded > 0).long(), "labels": index % 4}


class Classifier(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(3000, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 4)

    def forward(self, input_ids, attention_mask):
        hidden = self.encoder(self.embed(input_ids), src_key_padding_mask=attention_mask == 0)
        return self.head(hidden[:, 0])


loader = DataLoader(Tickets(), batch_size=16, shuffle=True)  # <- here
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)

for epoch in range(10):
    for batch in loader:
        labels = batch.pop("labels")
        loss = nn.functional.cross_entropy(model(**batch), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
