"""Which jobs there are: `family/style/size/threads` by cause; pairs with the heavier cause first."""

from __future__ import annotations

PLANTED = {
    "item-cpu-bound": "images/flat/0/1 audio/lightning/1/2 chars/main/1/1 metric/trainer/0/1 segments/accelerate/1/2 "
    "spectra/mmengine/0/1",
    "item-io-bound": "images/main/1/1 audio/object/0/1 reviews/lightning/1/1 table/accelerate/1/2 series/trainer/0/1",
    "collate-bound": "images/object/0/1 table/flat/0/1 reviews/main/1/2 audio/mmengine/1/1 metric/lightning/1/1 "
    "autoencoder/accelerate/2/1",
    "workers-too-few": "images/flat/1/1 segments/main/1/2 chars/object/2/1 gan/flat/1/1 audio/trainer/1/1 "
    "table/lightning/2/1",
    "workers-too-many": "table/flat/0/1 autoencoder/main/0/1 metric/object/0/2 chars/lightning/0/1 images/mmengine/0/1",
    "workers-restart": "images/flat/0/1 audio/main/0/1 reviews/object/0/1 autoencoder/lightning/1/1 "
    "metric/accelerate/0/1",
    "prefetch-shallow": "table/main/1/1 images/object/1/1 audio/flat/1/2 accumulated/flat/1/1 chars/accelerate/1/1",
    "repeated-work": "images/main/0/1 spectra/flat/0/2 audio/trainer/0/1 segments/object/1/1 series/lightning/1/1 "
    "metric/accelerate/1/1",
    "input-starved": "images/flat/0/1 table/main/1/1 autoencoder/object/1/2 audio/flat/1/1",
    "element-loop": "images/main/0/1 table/object/1/2 metric/flat/0/1 audio/lightning/0/1 series/mmengine/0/1 "
    "segments/trainer/1/1 chars/accelerate/0/1",
    "launch-bound": "series/flat/1/1 series/lightning/2/2 images/main/0/1 table/object/0/1 graph/flat/0/1 "
    "metric/accelerate/1/1",
    "batch-too-small": "table/flat/0/1 table/main/1/2 autoencoder/object/0/1 accumulated/main/0/1 table/lightning/2/1 "
    "autoencoder/mmengine/1/1",
    "uncompiled": "images/flat/2/1 audio/main/2/1 spectra/object/1/2 spectra/lightning/2/1 segments/accelerate/2/1",
    "recompiling": "table/flat/0/1 images/main/0/1 metric/object/0/2 audio/accelerate/0/1 segments/lightning/0/1",
    "float64-compute": "table/main/1/1 images/flat/1/1 autoencoder/object/2/2 metric/lightning/1/1 audio/mmengine/1/1 "
    "chars/trainer/1/1",
    "optimizer-unfused": "table/object/0/1 images/flat/1/1 series/main/0/2 audio/accelerate/0/1 metric/trainer/1/1 "
    "segments/lightning/1/1",
    "padding-waste": "reviews/flat/0/1 reviews/main/1/2 reviews/lightning/2/1 reviews/trainer/1/1 "
    "reviews/accelerate/2/1 reviews/mmengine/0/1",
    "debug-mode-on": "chars/flat/0/1 reviews/main/0/1 series/object/0/2 chars/lightning/1/1 segments/accelerate/0/1",
    "logging-heavy": "images/main/0/1 table/flat/0/1 audio/object/1/2 metric/lightning/0/1 autoencoder/accelerate/1/1 "
    "series/mmengine/1/1",
    "validation-heavy": "images/flat/0/1 table/main/1/1 segments/object/0/2 audio/lightning/1/1 images/trainer/1/1 "
    "metric/accelerate/1/1 chars/flat/1/1",
    "checkpoint-heavy": "table/flat/0/1 metric/main/1/1 autoencoder/object/1/1 table/lightning/1/2 metric/trainer/0/1 "
    "accumulated/main/1/1",
    "monitoring-heavy": "images/flat/1/1 gan/main/1/1 table/object/1/2 segments/lightning/0/1 audio/mmengine/1/1 "
    "chars/trainer/1/1",
    "gc-pauses": "table/main/0/1 images/object/1/1 accumulated/flat/1/2 metric/lightning/0/1 audio/accelerate/0/1",
    "memory-churn": "images/flat/0/1 images/main/1/1 segments/object/0/1 segments/lightning/1/1",
    "memory-growth": "spectra/main/1/1 audio/flat/2/1 images/object/2/1 spectra/lightning/2/2",
    "step-outliers": "table/flat/1/1 images/main/0/1 audio/object/1/1 metric/accelerate/0/2 autoencoder/lightning/1/1",
    "gather-heavy": "graph/flat/0/1 graph/main/1/1 graph/object/2/2 images/flat/1/1 audio/lightning/1/1",
}
PAIRS = {
    "item-cpu-bound+checkpoint-heavy": "audio/main/1/1 images/lightning/0/1",
    "item-io-bound+logging-heavy": "images/object/0/1 table/flat/1/1",
    "validation-heavy+optimizer-unfused": "table/main/0/1 segments/flat/0/1",
    "monitoring-heavy+gc-pauses": "metric/flat/1/1 audio/mmengine/0/1",
    "element-loop+workers-too-few": "images/object/1/1 series/accelerate/0/1",
    "collate-bound+monitoring-heavy": "autoencoder/main/1/1 audio/lightning/0/1",
    "repeated-work+logging-heavy": "segments/flat/0/1 metric/trainer/0/1",
    "gc-pauses+validation-heavy": "images/flat/0/1 chars/main/0/1",
    "logging-heavy+optimizer-unfused": "table/accelerate/0/1 series/object/0/1",
    "launch-bound+checkpoint-heavy": "table/main/0/1",
    "element-loop+gc-pauses": "audio/object/0/1",
}
HEALTHY_JOBS = (
    "images/flat/2/1 table/main/2/1 table/flat/1/1 metric/object/2/1 autoencoder/accelerate/2/1 accumulated/flat/2/1 "
    "series/flat/2/1 series/lightning/1/1 series/trainer/2/2 spectra/main/2/1 spectra/mmengine/1/1 spectra/flat/1/2 "
    "audio/main/2/1 segments/flat/2/1 gan/object/2/1 table/lightning/2/2 metric/trainer/2/1 chars/flat/2/1 "
    "reviews/main/2/1 graph/object/2/1 autoencoder/mmengine/2/1"
)
