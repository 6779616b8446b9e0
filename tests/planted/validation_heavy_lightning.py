"""A Lightning job that validates many times in each epoch."""
# planted: validation-heavy
# profile: --steps 50

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regressor(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(60, 1600), nn.ReLU(), nn.Linear(1600, 1600), nn.ReLU(), nn.Linear(1600, 1)
        )

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.mse_loss(self.net(x), y)

    def validation_step(self, batch, _):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)  # <- here
        self.log("val_loss", loss)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-2)


def loader(rows, shuffle=False):
    return DataLoader(
        TensorDataset(torch.randn(rows, 60), torch.randn(rows, 1)), batch_size=400, shuffle=shuffle
    )


trainer = L.Trainer(
    max_epochs=5,
    val_check_interval=10,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Regressor(), loader(40_000, shuffle=True), loader(6_000))
