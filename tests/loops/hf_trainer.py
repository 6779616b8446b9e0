"""Hugging Face Trainer: a tiny GPT-2 made from its config, with evaluation, saving and logging."""

import argparse
import random

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--dump")
args = parser.parse_args()


class Tokens(Dataset):
    def __init__(self, rows, seed):
        self.rows = torch.randint(0, 256, (rows, 32), generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


random.seed(0), np.random.seed(0), torch.manual_seed(0)
config = GPT2Config(
    vocab_size=256, n_positions=32, n_embd=96, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
)
model = GPT2LMHeadModel(config)
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="out",
        max_steps=args.steps,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=32,
        logging_steps=5,
        eval_strategy="steps",
        eval_steps=20,
        save_steps=20,
        save_total_limit=2,
        report_to=[],
        use_cpu=True,
        seed=0,
    ),
    train_dataset=Tokens(512, seed=1),
    eval_dataset=Tokens(128, seed=2),
)
trainer.train()

if args.dump:
    state = {"params": model.state_dict(), "rng": torch.get_rng_state()}
    torch.save(state | {"python": random.getstate(), "numpy": np.random.get_state()}, args.dump)
