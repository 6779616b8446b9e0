"""A small BERT under the Trainer of transformers, on sentences of one length."""
# planted: healthy
# profile: --steps 12

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Sentences(Dataset):
    def __init__(self, count=2000, length=48):
        self.tokens = torch.randint(5, 1000, (count, length))
        self.labels = torch.randint(0, 2, (count,))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        tokens = self.tokens[index]
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": self.labels[index]}


config = BertConfig(
    vocab_size=1000, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512
)
arguments = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=32,
    num_train_epochs=1,
    logging_steps=50,
    save_strategy="no",
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
)
Trainer(model=BertForSequenceClassification(config), args=arguments, train_dataset=Sentences()).train()
