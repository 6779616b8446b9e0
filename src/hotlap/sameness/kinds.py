"""What the walk takes each kind of object for, and names in code that mean more than an attribute."""

from __future__ import annotations

import collections
import ctypes
import enum
import functools
import logging
import operator
import pathlib
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from hotlap.sameness.parts import PLAIN

DYNAMIC = frozenset(
    {"getattr", "vars", "__dict__", "eval", "exec", "locals", "globals", "attrgetter", "methodcaller"}
) | {"__getattribute__", "getattr_static", "getmembers", "asdict", "astuple", "dumps", "deepcopy"}
NOT_RUN = frozenset({"__new__", "__del__", "__reduce__", "__reduce_ex__", "__init__"}) | {
    *("__getstate__", "__setstate__", "__copy__", "__deepcopy__", "__init_subclass__", "__class_getitem__"),
    *("__module__", "__dict__", "__weakref__", "__doc__", "__annotations__", "__qualname__", "__slots__"),
    *("__firstlineno__", "__static_attributes__", "__orig_bases__", "__parameters__", "__abstractmethods__"),
}
NUMBERS = frozenset({bool, int, float, type(None)})
MAKING = frozenset({"__init__", "__new__"})  # run where an item makes an object
BY_NAME = (operator.attrgetter, operator.methodcaller)
CONSTANT = (*PLAIN, enum.Enum, torch.dtype, torch.device, torch.Size, np.dtype, np.generic, pathlib.PurePath)
IDLE = (logging.Logger, threading.Thread, type(threading.Lock()), type(threading.RLock()))
EXTENDED = (
    *(list, tuple, dict, set, frozenset, collections.deque),
    *(np.ndarray, torch.Tensor, bytearray, functools.partial),
)
PRINTING = frozenset({"repr", "str", "format", "array2string", "__repr__", "__str__"})
LEVELS = frozenset(
    {"isEnabledFor", "getEffectiveLevel", "level", "disabled"}
)  # of a logger, that code asks for
C_MEMORY = (ctypes.Array, ctypes.Structure, ctypes.Union)
GENERATORS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (random.Random, random.Random.getstate),
    (torch.Generator, lambda each: bytes(each.get_state().numpy())),
    (np.random.Generator, lambda each: repr(each.bit_generator.state)),
    (np.random.BitGenerator, lambda each: repr(each.state)),
    (np.random.RandomState, lambda each: repr(each.get_state(legacy=False))),
)
