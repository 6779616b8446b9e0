"""The same tiny training of sequences, as a raw loop and with each framework. It shuffles, pads and drops out."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

ITEMS, BATCH, EPOCHS = 40, 4, 2


class Sequences(Dataset):
    """Items of 3 to 12 tokens, with a label for each token."""

    def __init__(self, count: int = ITEMS) -> None:
        draw = random.Random(5)
        self.rows = [[draw.randrange(1, 20) for _ in range(draw.randrange(3, 13))] for _ in range(count)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = torch.tensor(self.rows[index])
        return {"input_ids": row, "labels": row % 4}


def padded(items: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {key: pad_sequence([item[key] for item in items], batch_first=True) for key in items[0]}


class Tagger(nn.Module):
    """Remembers the shape of every batch, of training and of validation apart."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.dropout = nn.Dropout(0.2)
        self.out = nn.Linear(8, 4)
        self.shapes: dict[bool, list[tuple[int, ...]]] = {True: [], False: []}

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        self.shapes[self.training].append(tuple(input_ids.shape))
        logits = self.out(self.dropout(self.embedding(input_ids)))
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


@dataclass
class Trained:
    """What came of it: `training` and `validating` are shapes of batches."""

    parameters: list[torch.Tensor]
    states: tuple[Any, ...]
    training: list[tuple[int, ...]] = field(default_factory=list)
    validating: list[tuple[int, ...]] = field(default_factory=list)

    def same_bits(self, other: Trained) -> bool:
        tensors = zip(
            [*self.parameters, *self.states[:1]], [*other.parameters, *other.states[:1]], strict=True
        )
        return (
            all(torch.equal(mine, theirs) for mine, theirs in tensors) and self.states[1:] == other.states[1:]
        )


def _seed() -> None:
    random.seed(3), np.random.seed(3), torch.manual_seed(3)


def _loaders() -> tuple[DataLoader, DataLoader]:
    train_loader = DataLoader(Sequences(), batch_size=BATCH, shuffle=True, collate_fn=padded)
    valid_loader = DataLoader(Sequences(8), batch_size=BATCH, collate_fn=padded)
    return train_loader, valid_loader


def _result(model: Tagger) -> Trained:
    states = torch.get_rng_state(), random.getstate(), str(np.random.get_state())
    return Trained(
        [each.detach() for each in model.parameters()], states, model.shapes[True], model.shapes[False]
    )


def _loop(model: Any, optimizer: Any, train_loader: Any, valid_loader: Any, backward: Any) -> None:
    for _ in range(EPOCHS):
        model.train()
        for batch in train_loader:
            optimizer.zero_grad()
            backward(model(**batch)["loss"])
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for batch in valid_loader:
                model(**batch)


def raw(_: Any) -> Trained:
    _seed()
    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    _loop(model, optimizer, *_loaders(), torch.Tensor.backward)
    return _result(model)


def accelerated(_: Any) -> Trained:
    from accelerate import Accelerator

    _seed()
    accelerator = Accelerator(cpu=True)
    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    prepared = accelerator.prepare(model, optimizer, *_loaders())
    _loop(*prepared, accelerator.backward)
    return _result(model)


def lightning(folder: Any) -> Trained:
    import lightning as L

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.tagger = Tagger()

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            return self.tagger(**batch)["loss"]

        def validation_step(self, batch: Any, _: int) -> None:
            self.tagger(**batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    _seed()
    module = Module()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=EPOCHS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        default_root_dir=folder,
    )
    trainer.fit(module, *_loaders())
    return _result(module.tagger)


def hugging_face(folder: Any) -> Trained:
    from transformers import Trainer, TrainingArguments

    _seed()
    model = Tagger()
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=BATCH,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=3,
        label_names=["labels"],
        remove_unused_columns=False,
    )
    Trainer(
        model, arguments, data_collator=padded, train_dataset=Sequences(), eval_dataset=Sequences(8)
    ).train()
    return _result(model)


def mmengine(folder: Any) -> Trained:
    from mmengine.evaluator import BaseMetric
    from mmengine.model import BaseModel
    from mmengine.runner import Runner

    class Model(BaseModel):
        def __init__(self) -> None:
            super().__init__()
            self.tagger = Tagger()

        def forward(self, input_ids: Any, labels: Any, mode: str) -> Any:
            out = self.tagger(input_ids, labels)
            return {"loss": out["loss"]} if mode == "loss" else [out["logits"]]

    class Nothing(BaseMetric):
        def process(self, data_batch: Any, data_samples: Any) -> None:
            self.results.append(0)

        def compute_metrics(self, results: Any) -> dict[str, float]:
            return {"nothing": 0.0}

    _seed()
    train_loader, valid_loader = _loaders()
    runner = Runner(
        model=Model(),
        work_dir=str(folder),
        train_dataloader=train_loader,
        val_dataloader=valid_loader,
        train_cfg={"by_epoch": True, "max_epochs": EPOCHS, "val_interval": 1},
        val_cfg={},
        val_evaluator={"type": Nothing},
        optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.1}},
        default_hooks={"checkpoint": None, "logger": None},
        experiment_name=f"run{random.random()}",
        randomness={"seed": 3},
        log_level="ERROR",
    )
    runner.train()
    return _result(runner.model.tagger)


TRAININGS = {
    "raw": raw,
    "accelerate": accelerated,
    "lightning": lightning,
    "hugging-face": hugging_face,
    "mmengine": mmengine,
}
