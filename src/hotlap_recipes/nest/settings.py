"""What of NeMo's config is not done here is refused: a key that is read by nobody would promise something else."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue

from hotlap_recipes.nest import BadInputError

# By key, the values that are computed here.
SUPPORTED: dict[str, tuple[Any, ...]] = {
    "model.mask_position": ("pre_conv",),
    "model.preprocessor.normalize": ("per_feature",),
    "model.preprocessor.window": ("hann",),
    "model.preprocessor.log": (True,),
    "model.preprocessor.frame_splicing": (1,),
    "model.preprocessor.pad_value": (0.0,),
    "model.spec_augment.freq_masks": (0,),
    "model.spec_augment.time_masks": (0,),
    "model.masking.freeze": (True,),
    "model.masking.allow_overlap": (True,),
    "model.quantizer.freeze": (True,),
    "model.quantizer.dist_fn": ("l2", "cosine"),
    "model.quantizer.search": ("distance", "product"),
    "model.encoder.feat_out": (-1,),
    "model.encoder.subsampling": ("dw_striding",),
    "model.encoder.causal_downsampling": (False,),
    "model.encoder.self_attention_model": ("rel_pos",),
    "model.encoder.att_context_size": ([-1, -1],),
    "model.encoder.att_context_style": ("regular",),
    "model.encoder.untie_biases": (True,),
    "model.encoder.conv_norm_type": ("batch_norm",),
    "model.encoder.conv_context_size": (None,),
    "model.encoder.stochastic_depth_drop_prob": (0.0,),
    "model.loss.frames": ("all", "masked"),
    "model.optim.name": ("adamw",),
    "model.optim.sched.name": ("NoamAnnealing",),
    "exp_manager.create_wandb_logger": (False,),
}
SUPPORTED |= {
    f"model.{part}.{key}": values
    for part in ("train_ds", "validation_ds")
    for key, values in {
        "use_start_end_token": (False,),
        "trim_silence": (False,),
        "is_concat": (False,),
        "use_lhotse": (False,),
        "bucketing_strategy": ("none", "synced_randomized", "fully_randomized"),
        "on_bad_clip": ("skip", "refuse"),
    }.items()
}
CLASSES = {
    "preprocessor": "AudioToMelSpectrogramPreprocessor",
    "masking": "RandomBlockMasking",
    "quantizer": "RandomProjectionVectorQuantizer",
    "encoder": "ConformerEncoder",
    "decoder": "MultiSoftmaxDecoder",
    "loss": "MultiMLMLoss",
    "train_ds.batch_augmentor": "MultiSpeakerNoiseAugmentation",
    "validation_ds.batch_augmentor": "MultiSpeakerNoiseAugmentation",
}


def check(config: DictConfig) -> None:
    """Raises on the first value that would be ignored or cannot work."""
    for key, values in SUPPORTED.items():
        found = OmegaConf.select(config, key, default=values[0])
        found = OmegaConf.to_object(found) if OmegaConf.is_config(found) else found
        if found not in values:
            allowed = " or ".join(map(str, values))
            raise BadInputError(
                f"{key} is {found}.", f"this recipe knows {allowed}; leave it at that, or use NeMo."
            )
    for part, name in CLASSES.items():
        target = str(OmegaConf.select(config, f"model.{part}._target_", default=name))
        if target.rpartition(".")[2] != name:
            raise BadInputError(f"model.{part}._target_ is {target}.", f"this recipe computes {name} only.")
    _check_numbers(config)


def _check_numbers(config: DictConfig) -> None:
    model = config.model
    if model.encoder.subsampling_conv_channels == -1:
        model.encoder.subsampling_conv_channels = model.encoder.d_model
    stack, padding = model.encoder.subsampling_factor, model.preprocessor.pad_to
    if padding < 1 or padding % stack:
        raise BadInputError(
            f"model.preprocessor.pad_to is {padding}.", f"take a multiple of the subsampling, {stack}."
        )
    try:
        data = model.train_ds.manifest_filepath
    except MissingMandatoryValue:
        data = None
    if not data:
        raise BadInputError(
            "model.train_ds.manifest_filepath is not given.",
            "name a manifest; `python -m hotlap_recipes.nest.make_data` makes one.",
        )
    for part in (model.train_ds, model.validation_ds):
        if part.batch_size < 1 or part.num_workers < 0:
            raise BadInputError(
                f"batch_size is {part.batch_size} and num_workers {part.num_workers}.",
                "give at least 1 and 0.",
            )
