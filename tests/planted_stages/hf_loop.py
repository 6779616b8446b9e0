"""An HF Trainer with a delay of known size in one stage, written to planted.json as it really was."""

import argparse
import contextlib
import json
import time
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.utils.logging import disable_progress_bar

parser = argparse.ArgumentParser()
parser.add_argument("--stage", required=True, help="one, or several with commas; `none` plants nothing")
parser.add_argument("--ms", type=float, default=20.0)
parser.add_argument("--every", type=int, default=1, help="steps between two delays")
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()
planted = {stage: [] for stage in args.stage.split(",")}
inside = 0.0
clock = {}  # milliseconds by stage and step, as the script's own stopwatch says


@contextlib.contextmanager
def stopwatch(stage, step):
    """One inside another stops the outer one."""
    global inside
    started, outer, inside = time.perf_counter(), inside, 0.0
    yield
    spent = time.perf_counter() - started
    steps = clock.setdefault(stage, {})
    steps[step] = steps.get(step, 0.0) + (spent - inside) * 1e3
    inside = outer + spent


def delay(stage, step):
    if stage in planted and step % args.every == 0:
        started = time.perf_counter()
        time.sleep(args.ms / 1000)
        planted[stage].append(time.perf_counter() - started)


class Tokens(Dataset):
    def __len__(self):
        return 16 * args.steps

    def __getitem__(self, index):
        row = torch.arange(index, index + 16) % 64
        return {"input_ids": row, "labels": row}


class Slow(TrainerCallback):
    def on_log(self, args, state, control, **kwargs):
        if "loss" in kwargs["logs"]:
            delay("log", state.global_step)

    def on_step_end(self, arguments, state, control, **kwargs):
        with stopwatch("other", state.global_step):
            delay("other", state.global_step)


class MyTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """An override that never calls its parent, as most are."""
        with stopwatch("forward", self.state.global_step) if model.training else contextlib.nullcontext():
            if model.training:
                delay("forward", self.state.global_step)
            outputs = model(**inputs)
        return (outputs.loss, outputs) if return_outputs else outputs.loss

    def log(self, logs, *args, **kwargs):
        with stopwatch("log", self.state.global_step):
            super().log(logs, *args, **kwargs)

    def _maybe_log_save_evaluate(self, *args, **kwargs):
        with stopwatch("log", self.state.global_step):
            super()._maybe_log_save_evaluate(*args, **kwargs)

    def evaluate(self, *args, **kwargs):
        with stopwatch("validate", self.state.global_step):
            return super().evaluate(*args, **kwargs)

    def _save_checkpoint(self, *args, **kwargs):
        with stopwatch("checkpoint", self.state.global_step):
            super()._save_checkpoint(*args, **kwargs)

    def _save(self, output_dir=None, state_dict=None):
        delay("checkpoint", self.state.global_step)
        super()._save(output_dir, state_dict)


def compute_metrics(predictions):
    delay("validate", trainer.state.global_step)
    return {"mean": float(predictions.predictions.mean())}


disable_progress_bar()  # saving shows one, and that is logging
torch.manual_seed(0)
config = GPT2Config(
    vocab_size=64, n_positions=16, n_embd=64, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
)
trainer = MyTrainer(
    model=GPT2LMHeadModel(config),
    args=TrainingArguments(
        output_dir="checkpoints",
        max_steps=args.steps,
        per_device_train_batch_size=16,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=1,
        save_steps=1,
        save_total_limit=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    ),
    train_dataset=Tokens(),
    eval_dataset=torch.utils.data.Subset(Tokens(), range(16)),
    compute_metrics=compute_metrics,
    callbacks=[Slow()],
)
trainer.train()
Path("planted.json").write_text(json.dumps({"steps": args.steps, "seconds": planted, "clock": clock}))
