"""The space."""

from __future__ import annotations

import atexit
import datetime
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from farside import _farside
from farside._arguments import Argument, Array, Kind, Lent, address_and_bytes, record
from farside._farside import Column
from farside._future import Future
from farside._kernel import Kernel
from farside._report import Report
from farside._table import shared_table

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

HOST = -1
"""The memory of the host, where a memory is asked for; a card's is its number."""

MADE = np.dtype([("address", np.uint64), ("length", np.uint64)])
"""What a kernel in C says of what it has made in its card's own memory: `farside_made` of `farside-kernel.h`."""

MADE_COLUMN = np.dtype([("values", MADE), ("offsets", MADE), ("validity", MADE), ("length", np.uint64)])
"""The same of a column: `farside_made_column`."""

_open: weakref.WeakSet[Space] = weakref.WeakSet()


class _Bytes:
    """Bytes of memory of a space, as NumPy takes them. Every array over them holds it, and it holds the memory."""

    def __init__(self, memory: _farside.Memory, read_only: bool = False) -> None:
        self.memory = memory
        self.__array_interface__ = {
            "version": 3,
            "shape": (memory.nbytes,),
            "typestr": "|u1",
            "data": (memory.address, read_only),
        }


class Adopted:
    """An array of the program's own that is shared with the cards until `release`, or the end of `with`.

    It keeps the array. When nothing refers to it any more, and no kernel holds the array, all of it comes home.
    """

    def __init__(self, space: _farside.Space, memory: _farside.Memory, array: Array) -> None:
        self._space = space
        self._memory: _farside.Memory | None = memory
        self.array = array
        """The array: the same as before, with the same address."""

    def release(self) -> Array:
        """Brings all of it home: it is an ordinary array again, with what kernels have written.

        Raises LentError while a kernel holds it, FarsideError if bytes of it were lost with a card (they are zeros
        then, and the array is ordinary), or if it cannot be brought home: it is shared as before, and can be released
        again.
        """
        if self._memory is not None:
            self._memory.give_back(self._space)
            self._memory = None
        return self.array

    def __enter__(self) -> Array:
        return self.array

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class MappedFile:
    """A file that is shared memory: see `Space.map_file`.

    Its memory is given back when nothing refers to this or to the array any more, and no kernel holds it; what was
    changed is written then, and what goes wrong is only logged. So `sync` is better, or the end of `with`.
    """

    def __init__(self, memory: _farside.Memory, array: Array) -> None:
        self._memory = memory
        self.array = array
        """What is in the file, and what will be."""

    def sync(self) -> None:
        """Writes what was changed, by kernels that have ended and by the program, and waits until it is on the disk.

        Raises FarsideError, with path and byte, for what cannot be written: it stays in memory, to be synced again, but
        for what was lost with a card; all else is written.
        """
        self._memory.sync()

    def __enter__(self) -> Array:
        return self.array

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sync()


def _of_buffer(source: Buffer) -> Array:
    """An array over a buffer; as long as it lives, the buffer is not resized."""
    try:
        view = memoryview(source)
    except TypeError:
        raise TypeError(f"{type(source).__name__} is no array, and has no buffer that could be shared") from None
    return np.asarray(view)


@dataclass(frozen=True)
class Part:
    """A part of an array, and where it is."""

    address: int
    """Of its first byte; the part begins and ends with a page."""
    nbytes: int
    state: str
    owner: str | None
    """The memory that it is in; None if nobody has touched it yet."""
    copies: list[str]
    """Memories with a valid copy."""
    reason: str | None
    """Why it came there last."""


@dataclass(frozen=True)
class OwnMemory:
    """One of a card's own memories."""

    number: int
    name: str
    """Its kind and its number among those of that kind, as "hbm0"."""
    kind: str
    nbytes: int
    free: int
    """Bytes that nobody has."""


class Space:
    """One virtual address space over host memory and cards. Closed by `close` or at the end of `with`.

    `cards`: how many there are, in this program; or where they are, as `farside … --cards` takes it.
    `card_memory`: bytes of memory of each card. `card_window`: bytes of each card in the program for its own memory
    (`array_on`), beside that, or several memories as pairs of a kind ("ddr", "hbm", "bram", "host" or "memory") and
    bytes; cards that are served have what they are served with. `address_space`: bytes that can be allocated.
    `placement`: a placement scheme by its name, or one of your own: a shared library written to `farside-scheme.h`, as
    "./libmine.so:after=2". `large_pages`: arrays of 2 MiB and more lie in large pages and move in blocks of 2 MiB, for
    data that is used in large parts. `kernel_libraries`: shared libraries written to
    `farside-kernel.h`; their code runs in this process. `events`: a file for an event log of all that happens to
    memory, of which `report` then shows a page.

    An array lives as long as something refers to it, also when the space is closed. A child made by fork has no
    access to it: every call there raises `FarsideError`, and to touch an array ends the child.

    Raises ValueError for what cannot be opened, FarsideError if the machine lacks something.
    """

    def __init__(
        self,
        cards: int | str = 2,
        *,
        card_memory: int | None = None,
        card_window: int | Sequence[tuple[str, int]] = 0,
        address_space: int | None = None,
        processing_elements: int | None = None,
        placement: str | None = None,
        large_pages: bool = False,
        kernel_libraries: Iterable[str | os.PathLike[str]] = (),
        events: str | os.PathLike[str] | None = None,
    ) -> None:
        self._space = _farside.Space(
            cards if isinstance(cards, int) else 1,
            card_memory,
            _memories(card_window),
            address_space,
            processing_elements,
            placement,
            large_pages,
            cards if isinstance(cards, str) else None,
            [os.fspath(library) for library in kernel_libraries],
            None if events is None else os.fspath(events),
        )
        _open.add(self)

    def __enter__(self) -> Space:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            # Nobody waits for what was begun: it need not be done.
            self._space.cancel_all()
        self.close()

    def close(self) -> None:
        """Waits for all kernels and closes the space. May be called again."""
        self._space.close()

    @property
    def cards(self) -> range:
        """The cards' numbers."""
        return range(self._space.cards)

    @property
    def kernels(self) -> list[str]:
        """Names of the kernels that can be launched by name."""
        return self._space.kernels

    def array(self, shape: int | Sequence[int], dtype: npt.DTypeLike = np.float64, *, name: str = "") -> Array:
        """An array of zeros in shared memory. Its name is for reports and errors.

        Raises TypeError for a type that holds Python objects, FarsideError if there is no room.
        """
        return _array(shape, dtype, lambda nbytes: self._space.alloc(nbytes, name))

    def adopt(self, source: Array | Buffer, *, name: str = "") -> Adopted:
        """Shares memory that the program has already, at its own address: no copy is made, now or later.

        `source` is an array, or what has a writable buffer (`bytearray`, `array.array`, `memoryview`), of which an
        array is made. `with space.adopt(array) as shared: ...` lends it like an array of the space; at the end all of
        it is home. It is kept until then, and must not be resized. Pages that it shares with other data stay on the
        host, where kernels reach them; cards in other processes need arrays of whole pages. A child made by fork has a
        copy of its own, with right values. It needs Linux 6.8.

        Raises TypeError for what is no writable array of plain values in one piece, FarsideError for memory of the
        space or another one, of a file, or that cannot be shared on this machine.
        """
        array = source if isinstance(source, np.ndarray) else _of_buffer(source)
        address, nbytes = address_and_bytes(array)
        if not array.flags.writeable:
            raise TypeError("the array is read only, and shared memory is the cards' to write; copy it by Space.copy")
        return Adopted(self._space, self._space.adopt(address, nbytes, name, array), array)

    def map_file(
        self,
        path: str | os.PathLike[str],
        dtype: npt.DTypeLike = np.uint8,
        *,
        memory: int = 256 << 20,
    ) -> MappedFile:
        """Makes a file shared memory: an array of its values, which the program and kernels use at one address.

        Values come when they are touched, and what is changed is written by `MappedFile.sync`, at the end of `with`,
        and when its memory is needed for others: `memory` bytes of the host's are used at a time, of 4 MiB at least.
        So neither the host nor the cards have to hold all of it. The file is locked (flock) as long as it is mapped,
        and is never made longer. A child made by fork has none of it. It needs Linux 6.8.

        Raises TypeError for a type that holds Python objects, ValueError for a file without whole values, or that is
        no regular one, OSError if there is none, FarsideError if it cannot be opened, is mapped already, or cannot be
        shared on this machine.
        """
        kind = _plain(dtype)
        size = os.stat(path).st_size
        if size % kind.itemsize:
            name = os.fspath(path)
            raise ValueError(f"{name} has {size} bytes, which are no values of {kind.itemsize} bytes ({kind})")
        mapped = self._space.map_file(path, memory)
        return MappedFile(mapped, np.asarray(_Bytes(mapped)).view(kind))

    def array_on(
        self,
        card: int,
        shape: int | Sequence[int],
        dtype: npt.DTypeLike = np.float64,
        *,
        memory: int | str = 0,
    ) -> Array:
        """An array of zeros in a card's own memory: it stays there, and host and other cards reach it where it is.

        `memory`: which of the card's own memories (`own_memories`), by its number or its name; or by its kind, if the
        card has one of it alone. All of it has memory at once: NumPy reaches every page.

        Raises TypeError for a type that holds Python objects, FarsideError if the card has no such memory, or too
        little.
        """
        number = self._own_memory(card, memory)
        return _array(shape, dtype, lambda nbytes: self._space.alloc_on(card, nbytes, number, None))

    def copy_on(self, card: int, array: npt.ArrayLike, *, memory: int | str = 0) -> Array:
        """A copy of an array in a card's own memory that nobody writes: no kernel, and not the program.

        `memory` is as in `array_on`. Raises what that raises. A kernel that writes it nevertheless fails.
        """
        source = np.asarray(array)
        number = self._own_memory(card, memory)
        values = source.tobytes() if not source.dtype.hasobject else None
        return _array(
            source.shape,
            source.dtype,
            lambda nbytes: self._space.alloc_on(card, nbytes, number, values),
            read_only=True,
        )

    def take_over(self, card: int, made: Any, dtype: npt.DTypeLike, *, copy: bool | None = None) -> Array:
        """What a kernel in C has made in its card's own memory (`farside_finish`), as an array.

        `made` is what the kernel has written, an element of an array of `MADE`: the address of the first element, and
        how many there are, of `dtype`. It can be taken over once. The array is the card's memory itself, at that
        address. Where that lies in more pieces than can be mapped, or if `copy` is true, it is a copy in the program's
        own memory, and the card's is free.

        Raises FarsideError if no kernel of that card has made it, or has made less, or it was taken over before. A card
        in the program refuses also elements of another size; one in another process only those that need more bytes.
        """
        _check_card(card)
        kind = _plain(dtype)
        addr, length = (int(part) for part in made)
        if length == 0:
            return np.empty(0, kind)
        # More than there are addresses for: none has so many bytes.
        memory = self._space.take_over(card, addr, min(length * kind.itemsize, (1 << 64) - 1))
        if copy or not memory.is_shown():
            return np.frombuffer(memory.copied(), kind)
        return np.asarray(_Bytes(memory)).view(kind)

    def take_over_column(self, card: int, made: Any, kind: npt.DTypeLike | type[str] | type[datetime.date]) -> Column:
        """A column of Arrow that a kernel in C has built in its card's own memory (`farside_finish_column`).

        `made` is what the kernel has written, an element of an array of `MADE_COLUMN`; `kind` is `str` for texts, else
        the type of the values: an integer, a float, `bool` (a byte in the kernel, 0: false), `datetime64` or
        `timedelta64` of s, ms, us or ns (64 bits in the kernel), or `datetime.date` (32 bits: days since 1970).
        pyarrow, polars and pandas take the column by `__arrow_c_array__`, without a copy, and it lives as long as their
        arrays. Copied is only what lies in more pieces than can be mapped, truth values, which become bits, and of a
        card in another process texts, and which rows are valid.

        Raises FarsideError if no kernel of that card has made it or it has other rows, TypeError for other kinds. A
        card in the program refuses also narrower values than it has; one in another process only wider ones.
        """
        _check_card(card)
        parts = [(int(made[part]["address"]), int(made[part]["length"])) for part in ("values", "offsets", "validity")]
        return self._space.take_over_column(card, parts, int(made["length"]), _format(kind))

    def own_memories(self, card: int) -> list[OwnMemory]:
        """A card's own memories, in the order of their numbers.

        Raises FarsideError if it has none.
        """
        _check_card(card)
        told = enumerate(self._space.own_memories(card))
        return [OwnMemory(number, name, kind, nbytes, free) for number, (kind, name, nbytes, free) in told]

    def own_memory_free(self, card: int, memory: int | str | None = None) -> int:
        """Bytes of a card's own memory that nobody has: of one of its memories, or of all."""
        memories = self.own_memories(card)
        if memory is None:
            return sum(own.free for own in memories)
        number = self._own_memory(card, memory)
        if not 0 <= number < len(memories):
            names = ", ".join(f"{own.number} ({own.name})" for own in memories)
            raise _farside.FarsideError(f"card {card} has no memory number {number} of its own; there are {names}")
        return memories[number].free

    def _own_memory(self, card: int, memory: int | str) -> int:
        """The number of one of a card's own memories."""
        _check_card(card)
        return memory if isinstance(memory, int) else self._space.own_memory(card, memory)

    def copy(self, array: npt.ArrayLike, *, name: str = "") -> Array:
        """A copy of an array in shared memory."""
        source = np.asarray(array)
        shared = self.array(source.shape, source.dtype, name=name)
        shared[...] = source
        return shared

    def table(self, source: Any, *, name: str = "") -> pa.Table:
        """A copy of a table in shared memory: a table of Arrow, which polars and pandas take without another copy.

        `source` is a table of Arrow, pandas or polars, or what has `__arrow_c_stream__`. Each column has memory of its
        own. Columns can be lent by `farside.read`; `farside.values` and `farside.buffers` give them to NumPy.

        Raises TypeError for what is no table, ImportError without pyarrow, FarsideError if there is no room.
        """
        return shared_table(source, name, lambda nbytes, of: self.array(nbytes, np.uint8, name=of))

    def stream(self) -> int:
        """A stream: its launches run in the order in which they were made."""
        return self._space.stream()

    def launch(
        self,
        kernel: str | Kernel,
        *arguments: Argument,
        card: int = 0,
        stream: int | None = None,
        time_limit: float | None = None,
        after: Sequence[Future] = (),
    ) -> Future:
        """Launches a kernel and does not wait for it.

        `kernel` is a name (`kernels` lists them) or what `farside.kernel` made; these run on cards in this program.
        Arrays are lent by `farside.read`, `farside.write` and `farside.shared`; what else is given is a plain value.
        `time_limit` in seconds, waiting included. It begins when all of `after` have ended.

        Raises TypeError for what is no kernel and for arguments that none can take, KernelError for a name that there
        is not, LentError if another kernel holds an array, FarsideError for memory that is not shared and cards that
        there are not.
        """
        if not isinstance(kernel, (str, Kernel)):
            given = type(kernel).__name__
            raise TypeError(f"a {given} is no kernel: give the name of one, or a function that farside.kernel compiled")
        name, function = (kernel, None) if isinstance(kernel, str) else (kernel.name, kernel)
        if function is not None:
            arguments = _typed(function, arguments)
        records = [record(argument, index) for index, argument in enumerate(arguments)]
        _check_card(card)
        if any(future._space is not self._space for future in after):
            raise ValueError("after= has a future of another space; wait for it by its result()")
        job = self._space.launch(
            name,
            records,
            card,
            stream,
            time_limit,
            [future._job for future in after],
            None if function is None else function.address,
            None if function is None else function.code,
        )
        return Future(job, self._space, name)

    def run(self, kernel: str | Kernel, *arguments: Argument, card: int = 0, time_limit: float | None = None) -> int:
        """Launches a kernel, waits for its end and gives what it returned."""
        return self.launch(kernel, *arguments, card=card, time_limit=time_limit).result()

    def migrate(self, array: Array, to: int) -> int:
        """Moves an array to a card, or to `HOST`. Gives the pages moved."""
        return self._space.migrate(*address_and_bytes(array), to)

    def prefetch(self, array: Array, to: int) -> int:
        """Brings an array to a card, or to `HOST`, as far as there is room. Gives the pages moved."""
        return self._space.prefetch(*address_and_bytes(array), to)

    def pin(self, array: Array, at: int) -> None:
        """Moves an array and keeps it there until `unpin` of the same array."""
        self._space.pin(*address_and_bytes(array), at)

    def unpin(self, array: Array) -> None:
        """Undoes one `pin`."""
        self._space.unpin(*address_and_bytes(array))

    def set_read_only(self, array: Array, on: bool = True) -> None:
        """Whether kernels are kept from writing an array; those that try nevertheless fail."""
        self._space.set_read_only(*address_and_bytes(array), on)

    def advise(self, array: Array, advice: str, on: bool = True, *, memory: int | None = None) -> None:
        """Tells how an array will be used: "read_mostly", "whole_blocks", "preferred" or "accessed_by" (`memory`)."""
        self._space.advise(*address_and_bytes(array), advice, on, memory)

    def where(self, array: Array) -> list[Part]:
        """Where the parts of an array are."""
        return [Part(*part) for part in self._space.locate(*address_and_bytes(array))]

    def why(self, array: Array) -> str:
        """Why the page of an array's first element is placed as it is."""
        return self._space.why(address_and_bytes(array)[0])

    def report(self) -> Report:
        """What happened so far: counters, times, the busiest arrays, what is slow and what to do about it.

        Where an event log is kept (`events`, or FARSIDE_EVENTS), a notebook shows the page of `farside report`.
        """
        return Report(*self._space.report(), self._space.event_log(), self._space.events_so_far)


def _check_card(card: int) -> None:
    if card < 0:
        raise ValueError(f"there is no card {card}")


def _memories(window: int | Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """A card's own memories: kinds and bytes."""
    if isinstance(window, int):
        if window < 0:
            raise ValueError(f"card_window={window} is less than nothing")
        return [("memory", window)] if window else []
    return [(kind, nbytes) for kind, nbytes in window]


def _plain(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """A type whose values a card can have."""
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise TypeError(f"an array of {kind} holds references to Python objects, which no card can follow")
    if kind.itemsize == 0:
        raise TypeError(f"an array of {kind} has elements without bytes")
    return kind


def _format(kind: Any) -> str:
    """The name of a type in Arrow's C data interface."""
    if kind is str:
        return "u"
    if kind is datetime.date:
        return "tdD"
    dtype = np.dtype(kind)
    found = {
        "b1": "b",
        "i1": "c",
        "u1": "C",
        "i2": "s",
        "u2": "S",
        "i4": "i",
        "u4": "I",
        "i8": "l",
        "u8": "L",
        "f4": "f",
        "f8": "g",
    }
    for unit in ("s", "ms", "us", "ns"):
        found[f"M8[{unit}]"] = f"ts{unit[0]}:"
        found[f"m8[{unit}]"] = f"tD{unit[0]}"
    format = found.get(dtype.str[1:]) if dtype.isnative else None
    if format is None:
        raise TypeError(
            f"there are no columns of {dtype}; their rows are integers, floats of 4 or 8 bytes, bool, "
            "datetime64 and timedelta64 of s, ms, us or ns, datetime.date, or str"
        )
    return format


def _array(
    shape: int | Sequence[int],
    dtype: npt.DTypeLike,
    allocate: Callable[[int], _farside.Memory],
    read_only: bool = False,
) -> Array:
    """An array over so many bytes of memory."""
    kind = _plain(dtype)
    dimensions = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(length < 0 for length in dimensions):
        raise ValueError(f"an array has no shape {dimensions}")
    nbytes = kind.itemsize
    for length in dimensions:
        nbytes *= int(length)
    if nbytes == 0:
        return np.empty(dimensions, kind)
    if nbytes >= 1 << 63:
        raise ValueError(f"an array of {nbytes} bytes is more than there are addresses for")
    return np.asarray(_Bytes(allocate(nbytes), read_only)).view(kind).reshape(dimensions)


def _typed(function: Kernel, arguments: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """The arguments as the function's types want them: its code takes their bytes as they are."""
    if len(arguments) != len(function.types):
        raise TypeError(
            f"kernel `{function.name}` takes {len(function.types)} arguments and was given {len(arguments)}"
        )
    return tuple(
        _as_type(function, index, *pair) for index, pair in enumerate(zip(function.types, arguments, strict=True))
    )


def _as_type(function: Kernel, index: int, wanted: Any, given: Argument) -> Argument:
    is_array = isinstance(wanted, list)
    kind = np.dtype(wanted[0] if is_array else wanted)
    where = f"argument {index} (from 0 on) of kernel `{function.name}`"
    if not is_array:
        if isinstance(given, Lent):
            raise TypeError(f"{where} is an array; wanted is a value of {kind}")
        if kind.kind in "iub" and isinstance(given, (float, np.floating)):
            raise TypeError(f"{where} is {given}, a float; wanted is a value of {kind}, as {kind}(…) makes one")
        value: np.generic = kind.type(given)
        if isinstance(given, (int, np.integer)) and int(value) != given:
            raise OverflowError(f"{where} is {given}, which is no {kind}")
        return value
    if not isinstance(given, Lent):
        raise TypeError(f"{where} is no lent array; wanted is an array of {kind}: farside.read(x) or farside.write(x)")
    if given.kind is Kind.SHARED:
        raise TypeError(f"{where} is shared; kernels in Python take arrays that are lent by read() or write()")
    if given.array.dtype != kind:
        raise TypeError(f"{where} is an array of {given.array.dtype}; wanted is an array of {kind}")
    return given


@atexit.register
def _close_all() -> None:
    """Kernels use memory of the program: none runs on while it is taken down."""
    for space in list(_open):
        try:
            space._space.cancel_all()
            space.close()
        except Exception:  # a space of the process that this one was forked from
            continue
