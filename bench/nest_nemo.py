"""NeMo's side of the comparison with the nest recipe. Runs under a Python that has NeMo 3.0.0 and needs no hotlap.

nemo-python bench/nest_nemo.py answers CONFIG.json OUT.npz        what NeMo's model computes for given sounds
nemo-python bench/nest_nemo.py restored MODEL.nemo IN.npz OUT.npz the same with the weights of an archive
nemo-python bench/nest_nemo.py train CONFIG.json                   throughput of training, to $BENCH_FIGURES
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nemo.collections.asr.models.ssl_models import EncDecDenoiseMaskedTokenPredModel
from omegaconf import DictConfig, OmegaConf


def answers(config: Path, out: Path) -> None:
    """A model with random weights, its answers and its weights: all that another implementation needs to compare."""
    asked = json.loads(config.read_text())
    torch.manual_seed(asked["seed"])
    model = EncDecDenoiseMaskedTokenPredModel(OmegaConf.create(asked["model"]))
    with torch.no_grad():  # as after some training: statistics and biases that are not what they begin with
        for name, tensor in model.encoder.state_dict().items():
            if tensor.is_floating_point() and ("pos_bias" in name or "batch_norm" in name):
                tensor.add_(0.1 * torch.rand_like(tensor))
    inputs = dict(np.load(asked["sounds"]))
    weights = {f"weights/{name}": tensor.numpy() for name, tensor in model.state_dict().items()}
    np.savez_compressed(out, **inputs, **computed(model, inputs), **weights)


def restored(archive: Path, sounds: Path, out: Path) -> None:
    model = EncDecDenoiseMaskedTokenPredModel.restore_from(str(archive), map_location="cpu")
    np.savez_compressed(out, **computed(model, dict(np.load(sounds))))


def computed(model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """Encoder output, codes and loss for sounds (int16), their lengths, disturbed sounds and the frames to mask."""
    model.eval()
    seen: dict[str, Any] = {}
    masked = torch.from_numpy(inputs["masked"]).unsqueeze(1)

    def as_given(input_feats: torch.Tensor, **_: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        value = model.mask_processor.mask_embedding.view(1, -1, 1)
        return torch.where(masked, value, input_feats), masked.float().expand_as(input_feats)

    model.mask_processor.forward = as_given
    model.encoder.register_forward_hook(lambda *call: seen.update(encoded=call[2][0].transpose(1, 2)))
    audio, noisy = (torch.from_numpy(inputs[name]).float() / 32768 for name in ("audio", "noisy"))
    lengths = torch.from_numpy(inputs["lengths"])
    with torch.no_grad():
        features, _ = model.preprocessor(input_signal=audio, length=lengths)
        likely, encoded_len, masks, codes = model.forward(
            input_signal=audio,
            input_signal_length=lengths,
            noisy_input_signal=noisy,
            noisy_input_signal_length=lengths,
            apply_mask=True,
        )
        loss = model.loss(masks=masks, decoder_outputs=likely, targets=codes, decoder_lengths=encoded_len)
    found = {
        "encoded": seen["encoded"],
        "encoded_len": encoded_len,
        "codes": codes,
        "loss": loss,
        "features": features,
    }
    return {name: tensor.numpy() for name, tensor in found.items()}


def train(config: Path) -> None:
    import lightning.pytorch as lightning

    from nest_meter import Meter

    asked: DictConfig = OmegaConf.create(json.loads(config.read_text()))
    torch.set_num_threads(asked.threads)
    lightning.seed_everything(asked.seed, verbose=False)
    meter = Meter(asked.warmup, asked.steps, asked.model.sample_rate)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=asked.warmup + asked.steps,
        limit_val_batches=0,
        log_every_n_steps=asked.log_every_n_steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        callbacks=[meter],
    )
    model = EncDecDenoiseMaskedTokenPredModel(asked.model, trainer=trainer)
    trainer.fit(model)


if __name__ == "__main__":
    command = {"answers": answers, "restored": restored, "train": train}[sys.argv[1]]
    command(*map(Path, sys.argv[2:]))
