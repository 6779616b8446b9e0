"""The fast data path. Names are imported when they are first used (PEP 562), so that this costs nothing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_NAMES = {
    "Audio": "hotlap.data.decode",
    "BucketBatchSampler": "hotlap.data.bucketing",
    "Budget": "hotlap.data.budget",
    "CannotCacheError": "hotlap.data.cache.messages",
    "Loader": "hotlap.data.loader",
    "Picture": "hotlap.data.decode",
    "TokenBudgetSampler": "hotlap.data.bucketing",
    "materialise": "hotlap.data.cache.materialise",
    "open_shards": "hotlap.data.shards",
    "pad_collate": "hotlap.data.bucketing",
    "padding_waste": "hotlap.data.bucketing",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'hotlap.data' has no attribute '{name}'")
    return getattr(import_module(_NAMES[name]), name)
