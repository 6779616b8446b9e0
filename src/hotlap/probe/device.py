"""Times asynchronous device work with events, and never makes the host wait for them.

An event is recorded where the host hands over: before backward (all of forward is queued), before the optimizer's step,
after it. Whether it has completed is asked at later steps. The moment of completion is put on the host's clock by a
first event that was seen to complete at once. While a CUDA graph is captured nothing is recorded and nothing asked: an
event would become part of the graph, and a question would end the capture with an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from hotlap.probe import marks
from hotlap.probe.session import Session, now

_MOST_PENDING = 256  # a device that far behind will not be followed further
_WEIGH_EVERY_NS = 500_000_000
_LATEST_DEVICE = 8  # steps: a script that has not touched CUDA by then trains on the CPU
_ANCHOR_WITHIN_NS = 100_000  # an event that completes within this found the device idle


class DeviceClock:
    """When the device finished each part of a step, as marks on the host's clock."""

    def __init__(
        self,
        session: Session,
        make_event: Callable[[], Any],
        is_capturing: Callable[[], bool] = lambda: False,
    ) -> None:
        self._append, self._origin = session.append, session.origin
        self._make_event = make_event  # of torch.cuda.Event: record, query, elapsed_time
        self._is_capturing = is_capturing
        self._anchor: tuple[Any, int] | None = None
        self._weighed = 0
        self._pending: deque[tuple[int, Any]] = deque()

    def lap(self, code: int) -> None:
        """The host has queued all of one part (`code` says which) and goes on."""
        if self._is_capturing() or (self._anchor is None and not self._find_anchor()):
            return
        if len(self._pending) < _MOST_PENDING:
            event = self._make_event()
            event.record()
            self._pending.append((code, event))

    def drain(self) -> None:
        """Write down what has completed by now."""
        if self._anchor is None or self._is_capturing():
            return
        first, host = self._anchor
        while self._pending and self._pending[0][1].query():
            code, event = self._pending.popleft()
            completed = host + int(first.elapsed_time(event) * 1e6)
            self._append((completed - self._origin) << 8 | code)

    def weigh(self, allocated: Callable[[], int], reserved: Callable[[], int]) -> None:
        """Write down the allocator's figures, twice a second at most: they are counters, asking waits for nothing."""
        if now() - self._weighed > _WEIGH_EVERY_NS:
            self._weighed = now()
            self._append(allocated() << 8 | marks.DEVICE_ALLOCATED)
            self._append(reserved() << 8 | marks.DEVICE_RESERVED)

    def _find_anchor(self) -> bool:
        event = self._make_event()
        recorded = now()
        event.record()
        while now() - recorded < _ANCHOR_WITHIN_NS:
            if event.query():
                self._anchor = (event, (recorded + now()) // 2)
                return True
        return False


def install(session: Session) -> None:
    """Starts with the first step of a script that uses CUDA."""
    import torch

    make_event: Any = torch.cuda.Event

    def begin() -> None:
        if torch.cuda._initialized:  # which asks no driver
            capturing = torch.cuda.is_current_stream_capturing
            session.device = DeviceClock(session, lambda: make_event(enable_timing=True), capturing)
            session.step_ends.append(step_ended)
            session.backward_begins.append(backward_begins)

    def step_ended() -> bool:
        session.device.lap(marks.DEVICE_OPTIMIZER)
        session.device.drain()
        session.device.weigh(torch.cuda.memory_allocated, torch.cuda.memory_reserved)
        return True

    def backward_begins(_: Any) -> bool:
        session.device.lap(marks.DEVICE_FORWARD)
        return True

    def step_begins() -> bool:
        if session.device is None:
            begin()
        if session.device is not None:
            session.device.lap(marks.DEVICE_BACKWARD)
        return session.device is not None or session.control.steps < _LATEST_DEVICE

    session.step_begins.append(step_begins)
