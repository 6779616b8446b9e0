"""Times asynchronous device work with events, and never makes the host wait for them.

An event is recorded where the host goes from one part of a step to the next: all of the part is queued then. Whether it
has completed is asked at later borders. Each event says something of how far the device's clock is from the host's: it
completed after it was recorded, after it was last seen not to have, and before it was seen to have. All of them
together say it to microseconds, also of a device that is never idle. While a graph is captured nothing is recorded and
nothing asked: an event would become part of the graph, and a question would end the capture with an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from hotlap.probe import accelerator, boundary, marks
from hotlap.probe.accelerator import DeviceBackend
from hotlap.probe.session import Session, now

_MOST_PENDING = 256  # a device that far behind will not be followed further
_MOST_UNPLACED = 4096  # parts whose time on the host's clock is not known yet
_WEIGH_EVERY_NS = 500_000_000
_LATEST_DEVICE = 8  # steps: a script that has not touched a device by then trains on the CPU
_PRECISE_NS = 100_000
_JITTER_NS = 50_000  # what two clocks may contradict each other by, and still go at one pace
_ROUGH_NS = 2_000_000  # good enough for a run that ends without ever having told more
_ASKED_FROM = 6  # parts: about once in a step, where nothing is to be learnt of the clock any more
_MOST_COPIES = 8  # in a step that are timed one by one
_COST_SAMPLES = 200


class Line:
    """The events of one device, and how far its clock is from the host's: at least `low`, at most `high`."""

    def __init__(self, make_event: Callable[[], Any], stream: Callable[[], Any] | None = None) -> None:
        self.make_event = make_event  # record, query, elapsed_time
        self._stream = stream  # of a device that is not the current one
        self._first: Any = None
        self._free: list[Any] = []
        self.low = self.high = 0

    def record(self) -> Any:
        event = self._free.pop() if self._free else self.make_event()
        if self._stream is None:
            event.record()
        else:
            event.record(self._stream())
        return event

    def completed(self, event: Any, after: int, before: int) -> int:
        """When, on the device's clock, an event completed that did so between two moments on the host's."""
        if self._first is None:
            self._first, at = event, 0
            self.low, self.high = after, before
        else:
            at = int(self._first.elapsed_time(event) * 1e6)
            self._free.append(event)
            self.low, self.high = max(self.low, after - at), min(self.high, before - at)
            if self.low > self.high + _JITTER_NS:  # the two have drifted apart
                self.low, self.high = after - at, before - at
            elif self.low > self.high:
                self.low, self.high = self.high, self.low
        return at

    @property
    def offset(self) -> int:
        return (self.low + self.high) // 2

    @property
    def width(self) -> float:
        return self.high - self.low if self._first is not None else inf


class DeviceClock:
    """When the device finished each part of a step, as marks on the host's clock.

    A model that lies on several devices has a part finished where all of them have.
    """

    def __init__(
        self,
        session: Session,
        lines: Sequence[Line],
        is_capturing: Callable[[], bool] = lambda: False,
        stream: Callable[[], Any] = lambda: None,
    ) -> None:
        self._append, self._origin = session.append, session.origin
        self._lines = list(lines)
        self._is_capturing = is_capturing
        self._stream = stream  # the current one
        self._main: Any = boundary.attempt(stream)
        self._part = marks.DEVICE_GAP
        self._copies = self._not_yet = 0
        self._weighed = -_WEIGH_EVERY_NS - 1
        self._pending: deque[tuple[int, int, list[Any]]] = deque()
        self._beside: deque[tuple[int, Any, Any]] = deque()
        self._unplaced: deque[tuple[tuple[int, ...], int, list[int]]] = deque(maxlen=_MOST_UNPLACED)
        self._spent: list[int] = []
        self.laps = 0
        self.off = False

    # -- called by the taps ----------------------------------------------------------------------------------------

    def switch(self, part: int) -> int:
        """The host has queued all of one part and goes on with another, whose code this is; the part before."""
        before = self._part
        if part != before and not self.off:
            begun = now()
            self._attempt(self._lap, part)
            if self.laps < _COST_SAMPLES:
                self._spent.append(now() - begun)
            self.laps += 1
        return before

    def forward_begins(self) -> None:
        if self._part != marks.DEVICE_FORWARD:
            self._main = boundary.attempt(self._stream)
            self.switch(marks.DEVICE_FORWARD)

    def step_ends(self) -> None:
        self.switch(marks.DEVICE_GAP)
        self._copies = 0

    def copy_begins(self) -> Any:
        """What `copy_ends` wants to know: the part before, or the event of a copy on a stream of its own."""
        if self.off:
            return None
        if self._main is not None and boundary.attempt(self._stream) != self._main:
            return boundary.attempt(self._beside_begins)
        self._copies += 1
        return self.switch(marks.DEVICE_TRANSFER)

    def copy_ends(self, begun: Any) -> None:
        if begun is None or self.off:
            return
        if not isinstance(begun, int):
            boundary.attempt(self._beside_ends, begun)
        elif self._copies < _MOST_COPIES:
            self.switch(begun)

    def waited(self) -> None:
        """The host has just waited for the device: what was queued has completed, a moment ago."""
        if not self.off:
            self._attempt(self._drain)
            if not self._precise:
                self._attempt(self._compare)

    def ends(self) -> None:
        """The script has ended; what the device is still at will not be known."""
        if self.off:
            return
        self._attempt(self._drain)
        width = max(line.width for line in self._lines)
        if self._unplaced and width <= _ROUGH_NS:
            self._place()
        elif self._unplaced:
            boundary.unmeasured(
                f"time on the device: not measured: its clock is known to {width / 1e6:.1f} ms only, since the script "
                "never waits for it"
            )

    def weigh(self, allocated: Callable[[], int], reserved: Callable[[], int]) -> None:
        """Write down the allocator's figures, twice a second at most: they are counters, asking waits for nothing."""
        if now() - self._weighed > _WEIGH_EVERY_NS:
            self._weighed = now()
            self._append(allocated() << 8 | marks.DEVICE_ALLOCATED)
            self._append(reserved() << 8 | marks.DEVICE_RESERVED)

    @property
    def lap_ns(self) -> int:
        """What one call of `switch` took, in the middle."""
        return sorted(self._spent)[len(self._spent) // 2] if self._spent else 0

    # -- at work ---------------------------------------------------------------------------------------------------

    def _attempt(self, act: Callable[..., bool], *args: Any) -> None:
        if boundary.attempt(act, *args) is None:
            self.off = True
            boundary.unmeasured("time on the device: not measured: its events raised an error")

    def _lap(self, part: int) -> bool:
        code, self._part = self._part, part
        if self._is_capturing():
            return True
        if len(self._pending) >= _ASKED_FROM or not self._precise:
            self._drain()
        if len(self._pending) < _MOST_PENDING:
            self._pending.append((code, now(), [line.record() for line in self._lines]))
        return True

    def _drain(self) -> bool:
        """Take down what has completed by now."""
        if self._is_capturing():
            return True
        while self._pending:
            code, queued, events = self._pending[0]
            if not all(event.query() for event in events):
                self._not_yet = now()  # nor has what was queued after it
                break
            self._pending.popleft()
            seen, after = now(), max(queued, self._not_yet if len(events) == 1 else 0)
            times = [
                line.completed(event, after, seen) for line, event in zip(self._lines, events, strict=True)
            ]
            self._unplaced.append(((code,), queued, times))
        line = self._lines[0]
        while self._beside and self._beside[0][2].query():
            queued, begins, ends = self._beside.popleft()
            times = [line.completed(event, queued, now()) for event in (begins, ends)]
            self._unplaced.append(((marks.DEVICE_COPY_BEGINS, marks.DEVICE_COPY_ENDS), queued, times))
        if self._precise:
            self._place()
        return True

    @property
    def _precise(self) -> bool:
        return all(line.width <= _PRECISE_NS for line in self._lines)

    def _compare(self) -> bool:
        """An event that completes as it is recorded shows both clocks at one moment."""
        if self._is_capturing():
            return True
        for line in self._lines:
            begun, event = now(), line.record()
            if event.query():
                line.completed(event, begun, now())
        return self._drain()

    def _place(self) -> None:
        """Write down what is known by now, on the host's clock."""
        offsets = [line.offset - self._origin for line in self._lines]
        while self._unplaced:
            codes, queued, times = self._unplaced.popleft()
            if len(codes) > 1:
                for code, at in zip(codes, times, strict=True):
                    self._append((at + offsets[0]) << 8 | code)
            else:
                self._append(max(map(int.__add__, times, offsets)) << 8 | codes[0])
                self._append((queued - self._origin) << 8 | marks.DEVICE_QUEUED)

    def _beside_begins(self) -> Any:
        return None if self._is_capturing() else (now(), self._lines[0].record())

    def _beside_ends(self, begun: tuple[int, Any]) -> None:
        if len(self._beside) < _MOST_PENDING and not self._is_capturing():
            self._beside.append((*begun, self._lines[0].record()))


def install(session: Session) -> None:
    """Starts with the first step of a script that uses a device."""
    memory: list[Callable[[], int]] = []
    steps, met = 0, False

    def begin() -> None:
        nonlocal met
        device = boundary.attempt(accelerator.in_use)
        if device is None or not _indices(session, device.kind):
            return  # on a Mac the device is there for every script, also for one that trains on the CPU
        met = True
        session.facts["accelerator"] = _portrait(device)
        memory.extend(boundary.attempt(lambda: device.memory) or ())
        session.device = boundary.measuring("time on the device", _clock, session, device)

    def goes_on() -> bool:
        return session.device is not None or (not met and steps < _LATEST_DEVICE)

    def step_begins() -> bool:
        nonlocal steps
        steps += 1
        if not met:
            begin()
        if session.device is not None:
            session.device.switch(marks.DEVICE_OPTIMIZER)
        return goes_on()

    def step_ends() -> bool:
        if session.device is not None:
            session.device.step_ends()
            if memory:
                session.device.weigh(*memory)
        return goes_on()

    def backward_begins(_: Any) -> bool:
        if session.device is not None:
            session.device.switch(marks.DEVICE_BACKWARD)
        return goes_on()

    def describe() -> None:
        if session.device is not None:
            session.facts["device_laps"] = session.device.laps
            session.facts["device_lap_ns"] = session.device.lap_ns

    session.step_begins.append(step_begins)
    session.step_ends.append(step_ends)
    session.backward_begins.append(backward_begins)
    session.portraits.append(describe)
    session.endings.append(lambda: session.device.ends() if session.device is not None else None)


def _portrait(device: DeviceBackend) -> dict[str, Any]:
    memory = boundary.attempt(device.free_and_total)
    return {
        "kind": device.kind,
        "name": boundary.attempt(device.name) or device.kind,
        "memory_bytes": memory[1] if memory else None,
    }


def _clock(session: Session, device: DeviceBackend) -> DeviceClock:
    """Raises where the device has no events that take the time."""
    here = device.current_index()
    others = sorted(_indices(session, device.kind) - {here})

    def elsewhere(index: int) -> Line:
        return Line(lambda: device.event(f"{device.kind}:{index}"), lambda: device.current_stream(index))

    lines = [Line(device.event), *map(elsewhere, others)]
    for each in lines:
        each.make_event()  # the error comes here, and not in each step
    return DeviceClock(session, lines, device.is_capturing, lambda: device.current_stream(here))


def _indices(session: Session, kind: str) -> set[int]:
    """The devices that the trained parameters lie on."""
    groups = [group for optimizer in session.accumulation.alive() for group in optimizer.param_groups]
    parameters = [each for group in groups for each in group["params"]]
    return {each.device.index or 0 for each in parameters if each.device.type == kind}
