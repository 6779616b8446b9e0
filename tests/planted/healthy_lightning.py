"""An autoencoder under Lightning: validated and saved once an epoch, logged now and then."""
# planted: healthy
# profile: --steps 50

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 64))
        self.decoder = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 784))

    def step(self, batch, name):
        (x,) = batch
        loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log(name, loss)
        return loss

    def training_step(self, batch, _):
        return self.step(batch, "train_loss")

    def validation_step(self, batch, _):
        self.step(batch, "valid_loss")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def loader(rows, shuffle=False):
    return DataLoader(TensorDataset(torch.rand(rows, 784)), batch_size=512, shuffle=shuffle)


trainer = L.Trainer(max_epochs=5, accelerator="cpu", enable_progress_bar=False, log_every_n_steps=20)
trainer.fit(Autoencoder(), loader(20_000, shuffle=True), loader(1_000))
