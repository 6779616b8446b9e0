"""The one place that swallows exceptions: a fault of the probe never stops or changes a training run."""

from __future__ import annotations

import functools
import signal
import traceback
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_MOST_FAULTS = 20
faults: list[str] = []


def record(where: str, error: BaseException) -> None:
    """Remember a fault for the report; the first ones are enough to mend it."""
    if len(faults) < _MOST_FAULTS:
        last = traceback.extract_tb(error.__traceback__)[-1:]
        place = f" at {last[0].filename}:{last[0].lineno}" if last else ""
        faults.append(f"{where}: {type(error).__name__}: {error}{place}")


def unmeasured(what: str) -> None:
    """Remember, for the report, something that was asked for and could not be measured."""
    if len(faults) < _MOST_FAULTS:
        faults.append(what)


def contained(function: Callable[P, R]) -> Callable[P, R | None]:
    """Run `function`; on any exception of its own, record it and return None."""

    @functools.wraps(function)
    def quiet(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return function(*args, **kwargs)
        except RecursionError:
            return None  # the script has left no room on the stack, not even to write that down
        except Exception as error:
            if _is_of_a_signal(error):
                raise
            record(getattr(function, "__qualname__", "probe"), error)
            return None

    return quiet


def attempt(function: Callable[..., Any], *args: Any) -> Any:
    """`contained` for a single call, without the price of a wrapper."""
    try:
        return function(*args)
    except RecursionError:
        return None
    except Exception as error:
        if _is_of_a_signal(error):
            raise
        record(getattr(function, "__qualname__", "probe"), error)
        return None


def measuring(what: str, function: Callable[..., Any], *args: Any) -> Any:
    """`attempt` for a part of the probe that a torch of another release may not let in: then `what` is not measured."""
    try:
        return function(*args)
    except Exception as error:
        if _is_of_a_signal(error):
            raise
        unmeasured(f"{what}: not measured: {type(error).__name__}: {error}")
        return None


def _is_of_a_signal(error: Exception) -> bool:
    """Whether a signal handler of the script has raised it: it came while the probe was at work."""
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {getattr(getattr(each, "func", each), "__code__", None) for each in handlers} - {None}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))
