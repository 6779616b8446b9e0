"""Weights to NeMo and back, key by key.

    python -m hotlap_recipes.nest.export to-nemo run/resume/step=1000.ckpt nest.nemo
    python -m hotlap_recipes.nest.export from-nemo nest.nemo nest.pt

`nest.nemo` is what NeMo's `EncDecDenoiseMaskedTokenPredModel.restore_from` opens; training here starts from one with
`init_from_nemo_model=nest.nemo`.
"""

from __future__ import annotations

import argparse
import io
import pickle
import re
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from hotlap_recipes.nest import BadInputError

NEMO_CLASS = "nemo.collections.asr.models.ssl_models.EncDecDenoiseMaskedTokenPredModel"
CONFIG, WEIGHTS = "model_config.yaml", "model_weights.ckpt"
OWN_KEYS = (
    ("quantizer", "search"),
    ("loss", "frames"),
    ("optim", "fused"),
)  # of our configs; NeMo's classes do not take them
# Ours to NeMo's; each is read in both directions.
RENAMED = (
    ("encoder.body.", "encoder."),
    (".subsampling.layers.", ".pre_encode.conv."),
    (".subsampling.linear.", ".pre_encode.out."),
    (".self_attn.q_proj.", ".self_attn.linear_q."),
    (".self_attn.k_proj.", ".self_attn.linear_k."),
    (".self_attn.v_proj.", ".self_attn.linear_v."),
    (".self_attn.o_proj.", ".self_attn.linear_out."),
    (".self_attn.relative_k_proj.", ".self_attn.linear_pos."),
    (".self_attn.bias_u", ".self_attn.pos_bias_u"),
    (".self_attn.bias_v", ".self_attn.pos_bias_v"),
    (".conv.norm.", ".conv.batch_norm."),
)


def to_nemo(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of `Nest` as NeMo's model names it."""
    return {_renamed(key, RENAMED): value for key, value in state.items()}


def from_nemo(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of NeMo's model as `Nest` names it."""
    back = tuple((theirs, ours) for ours, theirs in RENAMED)
    return {_renamed(key, back): value for key, value in state.items()}


def _renamed(key: str, names: Sequence[tuple[str, str]]) -> str:
    if not key.startswith("encoder."):
        return key
    for old, new in names:
        key = re.sub(f"^{re.escape(old)}" if old.startswith("encoder.") else re.escape(old), new, key)
    return key


def write_nemo(path: Path, state: Mapping[str, Tensor], model: DictConfig) -> None:
    """An archive of the weights and the config of the model, as NeMo saves them."""
    weights = io.BytesIO()
    torch.save(to_nemo(state), weights)
    config = OmegaConf.to_yaml(OmegaConf.create(nemo_config(model)))
    with tarfile.open(path, "w:") as archive:
        for name, content in ((CONFIG, config.encode()), (WEIGHTS, weights.getvalue())):
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def nemo_config(model: DictConfig) -> dict[str, Any]:
    """The config of the model without references and without keys of ours."""
    config: Any = OmegaConf.to_container(model, resolve=True)
    for part, key in OWN_KEYS:
        config[part].pop(key, None)
    for part in ("train_ds", "validation_ds"):  # the data stay here; NeMo would look for them
        config.pop(part, None)
    return {**config, "target": NEMO_CLASS}


def read_nemo(path: Path) -> dict[str, Tensor]:
    """The weights of a .nemo archive, or of a state dict that torch saved, as `Nest` names them."""
    if not path.is_file():
        raise BadInputError(f"there is no file {path}.", "check the path.")
    content: Any = path
    if tarfile.is_tarfile(path):
        with tarfile.open(path) as archive:
            found = [member for member in archive if Path(member.name).name == WEIGHTS]
            file = archive.extractfile(found[0]) if found else None
            if file is None:
                raise BadInputError(f"{path} holds no {WEIGHTS}.", "give an archive that NeMo saved.")
            content = io.BytesIO(file.read())
    state = torch.load(content, map_location="cpu", weights_only=True)
    return from_nemo(state.get("state_dict", state))


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], DictConfig]:
    """Weights and model config of a checkpoint that `train` wrote."""
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
        state = {key.removeprefix("nest."): value for key, value in saved["state_dict"].items()}
        return state, OmegaConf.create(saved["nest_config"]).model
    except (OSError, KeyError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        reason = str(error).partition("\n")[0]
        raise BadInputError(
            f"{path} is no checkpoint of this recipe: {reason}.", "name one of train's."
        ) from None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("direction", choices=("to-nemo", "from-nemo"))
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args(arguments)
    try:
        if options.direction == "to-nemo":
            state, model = read_checkpoint(options.source)
            write_nemo(options.target, state, model)
        else:
            state = read_nemo(options.source)
            torch.save(state, options.target)
    except BadInputError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"wrote {len(state)} tensors to {options.target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
