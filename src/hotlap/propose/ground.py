"""The facts that a preset stands on."""

from __future__ import annotations

from dataclasses import dataclass

from hotlap.facts.diagnosis import Diagnosis
from hotlap.facts.host import Gpu, Host
from hotlap.facts.timeline import Loader, Timeline

Line = tuple[str, object, str]
"""A knob, its setting, and why."""

GIB = 1 << 30
_FRAMEWORKS = ("lightning", "transformers", "accelerate", "mmengine")


@dataclass(frozen=True)
class Ground:
    """The host, and what a stored profile knows of the job; without one the host alone speaks."""

    host: Host
    timeline: Timeline | None = None
    diagnosis: Diagnosis | None = None

    @property
    def gpu(self) -> Gpu | None:
        """The smallest GPU, if the job trains on one: what fits there fits on all."""
        if self.timeline is not None and self.timeline.model is not None:
            on_gpu = any(device.startswith("cuda") for device in self.timeline.model.devices)
            if not on_gpu:
                return None
        return min(self.host.gpus, key=lambda gpu: gpu.memory_bytes, default=None)

    @property
    def gpu_class(self) -> int:
        """8, 16 or 24: gigabytes that the smallest GPU has at least; 0 without one, or where it has less."""
        gigabytes = round(self.gpu.memory_bytes / GIB) if self.gpu else 0
        return next((size for size in (24, 16, 8) if gigabytes >= size), 0)

    @property
    def ranks(self) -> int:
        """Training processes that share the host: one for each GPU unless a profile knows better."""
        if self.timeline is not None:
            return max(1, self.timeline.world)
        return max(1, len(self.host.gpus))

    @property
    def loader(self) -> Loader | None:
        """The loader that training waits for, as a profile saw it."""
        training = [each for each in self.timeline.loaders if each.training] if self.timeline else []
        return max(training, key=lambda each: each.batches, default=None)

    @property
    def draws(self) -> bool:
        """Whether items are known to draw random numbers, which other workers would draw differently."""
        return self.loader is not None and self.loader.dataset.draws_random is True

    @property
    def draws_are_known(self) -> bool:
        return self.loader is not None and self.loader.dataset.draws_random is not None

    @property
    def frameworks(self) -> bool:
        """Whether a trainer may be there to take its options."""
        if self.timeline is not None:
            return self.timeline.runtime.framework != "plain"
        return any(name in self.host.versions for name in _FRAMEWORKS)
