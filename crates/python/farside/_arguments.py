"""What a kernel is given: arrays that are lent, and plain values."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from farside._table import is_column, values

Array: TypeAlias = npt.NDArray[Any]
Argument: TypeAlias = "Lent | np.generic | int | float | bool"
Record: TypeAlias = tuple[int, int, int, int]
"""Kind, bytes of an element, address or value, bytes or what number: `farside_argument` of `farside-kernel.h`."""


class Kind(IntEnum):
    """How something is given; the numbers are those of `farside-kernel.h`."""

    VALUE = 0
    READ = 1
    WRITE = 2
    SHARED = 3


@dataclass(frozen=True)
class Lent:
    """An array that is lent to a kernel: made by `read`, `write` and `shared`."""

    array: Array
    kind: Kind


def read(array: Any) -> Lent:
    """Lends an array, or a column of a table (`Space.table`), for reading.

    Nobody writes it until the kernel has ended.
    """
    return Lent(values(array) if is_column(array) else array, Kind.READ)


def write(array: Array) -> Lent:
    """Lends an array for reading and writing: nobody else uses it until the kernel has ended."""
    if is_column(array):
        raise TypeError("write() of a column of Arrow, which never changes; write an array of Space.array instead")
    if not array.flags.writeable:
        raise ValueError("write() of an array that is read-only; lend it by read()")
    return Lent(array, Kind.WRITE)


def shared(array: Array) -> Lent:
    """Lends words of 4 or 8 bytes that everybody may change at the same time, by atomic operations."""
    if not array.flags.writeable:
        raise ValueError("shared() of an array that is read-only; lend it by read()")
    if array.dtype.itemsize not in (4, 8) or array.dtype.kind not in "iu":
        raise TypeError(f"shared() of {array.dtype}; words that all may change are int32, uint32, int64 or uint64")
    return Lent(array, Kind.SHARED)


def address_and_bytes(array: Array) -> tuple[int, int]:
    """Where the bytes of an array are.

    Raises TypeError for what is no array of plain values in one piece.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{type(array).__name__} is no NumPy array; make one by Space.array or Space.copy")
    if array.dtype.hasobject:
        raise TypeError(f"an array of {array.dtype} holds references to Python objects, which no card can follow")
    if not array.dtype.isnative:
        raise TypeError(f"an array of {array.dtype} has another byte order than this machine and its cards")
    if not array.flags.c_contiguous:
        raise TypeError("the array is not contiguous; copy it by Space.copy, or lend a part that is")
    return array.ctypes.data, array.nbytes


def record(argument: Argument, index: int) -> Record:
    """The record of an argument.

    Raises TypeError, which names the argument, for what cannot be given to a kernel.
    """
    if isinstance(argument, Lent):
        try:
            address, nbytes = address_and_bytes(argument.array)
        except TypeError as error:
            raise TypeError(f"argument {index} (from 0 on): {error}") from None
        return int(argument.kind), argument.array.dtype.itemsize, address, nbytes
    if isinstance(argument, np.ndarray) and argument.ndim > 0:
        raise TypeError(
            f"argument {index} (from 0 on) is an array; say how it is lent: farside.read(x), farside.write(x) "
            "or farside.shared(x)"
        )
    value = plain_bytes(argument, index)
    return int(Kind.VALUE), len(value), int.from_bytes(value, "little"), number(argument)


def number(value: Any) -> int:
    """What number a plain value is, by the codes of `farside-kernel.h`; 0 if it is none, such as a date."""
    kind = value.dtype.kind if isinstance(value, np.generic) else np.dtype(type(value)).kind
    return {"b": 1, "i": 1, "u": 1, "f": 2}.get(kind, 0)


def plain_bytes(value: Any, index: int) -> bytes:
    """The bytes of a plain value: a NumPy scalar as it is, Python's int as int64, float as float64, bool as uint8."""
    if isinstance(value, bool):
        return struct.pack("<B", value)
    if isinstance(value, int):
        try:
            return struct.pack("<q" if value < 1 << 63 else "<Q", value)
        except struct.error:
            raise OverflowError(f"argument {index} (from 0 on) is {value}, which has more than 64 bits") from None
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, np.generic) and not value.dtype.hasobject and 0 < value.dtype.itemsize <= 8:
        return value.tobytes()
    raise TypeError(
        f"argument {index} (from 0 on) is {type(value).__name__}; a kernel takes lent arrays and plain values of at "
        "most eight bytes"
    )
