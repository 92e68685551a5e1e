"""Traces of one's own: what a program accesses, for simulated machines."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from farside._table import arrow

if TYPE_CHECKING:
    import pyarrow as pa

Accesses: TypeAlias = "Mapping[str, npt.ArrayLike]"
"""Columns of equal lengths by name; what is one number stands for all rows."""

_LINE = 64
_PAGE = 4096
_BLOCK = 1 << 21
_FIRST = 1 << 32
"""The address of the first buffer."""
_COUNT_MAX = 1 << 16
"""Lines of a row."""
_GPUS_MAX = 16

_COLUMNS: dict[str, tuple[str, int, int | None]] = {
    "gpu": ("uint8", _GPUS_MAX - 1, None),
    "buffer": ("int64", (1 << 63) - 1, None),
    "offset": ("int64", (1 << 63) - 1, None),
    "nbytes": ("int64", _COUNT_MAX * _LINE - _LINE, 4),
    "write": ("bool", 1, 0),
    "launch": ("uint32", 65535, 0),
    "unit": ("uint8", 63, 0),
}
"""Type, greatest value, and what it is where it is not given."""


def write_trace(
    path: str | os.PathLike[str],
    buffers: Mapping[str, int],
    accesses: Accesses | Iterable[Accesses],
    *,
    gpus: int | None = None,
) -> None:
    """Writes a trace: `simulate`, `farside sim --trace` and `farside replay` run it.

    `buffers` has the program's buffers and their bytes, in the order in which it allocates them. `accesses` are
    columns, or pieces of them one after the other, as a generator gives them:

    - `gpu`: who accesses, from 0;
    - `buffer`: which buffer, counted from 0, or one name; `offset`: the first byte in it; `nbytes`: by default 4;
    - `write`: whether it writes, by default not;
    - `launch`: the kernel launch, from 0, by default 0: the next one begins when all of one has ended;
    - `unit`: the compute unit, by default 0.

    A unit makes its accesses in the order of the rows; an access is an instruction of its own. `gpus`: how many there
    are, if more than the rows name.

    Raises ValueError for what cannot be, which names column and row.

    >>> import farside, numpy as np, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "scan.parquet")
    >>> n = np.arange(10_000)
    >>> scan = {"gpu": n % 4, "buffer": "x", "offset": 64 * n, "write": n % 8 == 0}
    >>> farside.write_trace(path, {"x": 64 * 10_000}, scan)
    >>> farside.simulate(path, "grit").column("total.reads")[0].as_py()
    8750
    """
    layout = _Layout(buffers)
    pieces = [accesses] if isinstance(accesses, Mapping) else accesses
    # A trace is there as a whole or not at all.
    part = f"{os.fspath(path)}.part"
    try:
        _write(part, _named(path), layout, pieces, gpus or 0)
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)
        raise


def _write(path: str, name: str, layout: _Layout, pieces: Iterable[Accesses], gpus: int) -> None:
    if gpus > _GPUS_MAX:
        raise ValueError(f"gpus={gpus}: a trace has at most {_GPUS_MAX}")
    parquet = importlib.import_module("pyarrow.parquet")
    row, numbers, schema = 0, _Sequence(), _schema()
    with parquet.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as file:
        for piece in pieces:
            columns = _checked(piece, layout, row)
            if len(columns["gpu"]):
                file.write_table(arrow().table(_rows(columns, layout, numbers), schema=schema))
                row += len(columns["gpu"])
                gpus = max(gpus, int(columns["gpu"].max()) + 1)
        file.add_key_value_metadata(_description(name, layout, max(gpus, 1)))


def _named(path: str | os.PathLike[str]) -> str:
    return os.path.splitext(os.path.basename(os.fspath(path)))[0]


def _schema() -> pa.Schema:
    """As docs/workloads.md has it."""
    pa = arrow()
    wide, narrow = pa.uint32(), pa.uint8()
    columns = [("launch", wide), ("gpu", narrow), ("unit", narrow), ("sequence", wide)]
    return pa.schema([*columns, ("line", pa.uint64()), ("count", wide), ("flags", narrow)])


class _Layout:
    """Where buffers lie: each begins at a block of its own."""

    def __init__(self, buffers: Mapping[str, int]) -> None:
        if not buffers:
            raise ValueError("a trace has at least one buffer")
        self.names = list(buffers)
        self.nbytes = np.array([int(nbytes) for nbytes in buffers.values()], np.int64)
        for name, nbytes in zip(self.names, self.nbytes, strict=True):
            if nbytes < 1:
                raise ValueError(f"buffer `{name}` has {nbytes} bytes; at least 1")
        blocks = -(-self.nbytes // _BLOCK)
        self.first = _FIRST + _BLOCK * np.concatenate([[0], np.cumsum(blocks)[:-1]])

    def number(self, given: Any) -> Any:
        """A buffer's number if it is named."""
        if not isinstance(given, str):
            return given
        if given not in self.names:
            raise ValueError(f"there is no buffer `{given}`; there are {', '.join(self.names)}")
        return self.names.index(given)


class _Sequence:
    """Numbers the accesses of each unit, launch by launch, from 0."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}

    def of(self, columns: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
        unit = (columns["launch"].astype(np.int64) << 16) | (columns["gpu"].astype(np.int64) << 8) | columns["unit"]
        order = np.argsort(unit, kind="stable")
        units, starts, counts = np.unique(unit[order], return_index=True, return_counts=True)
        before = np.array([self._next.get(int(key), 0) for key in units], np.int64)
        numbers = np.empty(len(unit), np.int64)
        numbers[order] = np.arange(len(unit)) - np.repeat(starts - before, counts)
        self._next.update(
            (int(key), int(first + count)) for key, first, count in zip(units, before, counts, strict=True)
        )
        return numbers


def _checked(piece: Accesses, layout: _Layout, row: int) -> dict[str, npt.NDArray[Any]]:
    """The columns, of one length and within their bounds; `row` is the number of the first."""
    for name in piece:
        if name not in _COLUMNS:
            raise ValueError(f"there is no column `{name}`; there are {', '.join(_COLUMNS)}")
    given: dict[str, npt.NDArray[Any]] = {}
    for name, (_, _, otherwise) in _COLUMNS.items():
        if name not in piece and otherwise is None:
            raise ValueError(f"the column `{name}` is missing")
        value = piece.get(name, otherwise)
        if np.ma.is_masked(value):
            raise ValueError(f"the column `{name}` has masked values; wanted are whole numbers in every row")
        given[name] = np.asarray(layout.number(value) if name == "buffer" else value)
    lengths = {len(column) for column in given.values() if column.ndim == 1}
    if len(lengths) > 1 or any(column.ndim > 1 for column in given.values()):
        raise ValueError(f"columns have one dimension and one length; these have {sorted(lengths)}")
    length = lengths.pop() if lengths else 1
    columns = {name: _column(name, np.broadcast_to(column, length), row) for name, column in given.items()}
    _within(columns, layout, row)
    return columns


def _column(name: str, column: npt.NDArray[Any], row: int) -> npt.NDArray[Any]:
    dtype, most, _ = _COLUMNS[name]
    # What is empty has whatever type it came with.
    if len(column) and column.dtype.kind not in "iub":
        raise ValueError(f"the column `{name}` has values of {column.dtype}; wanted are whole numbers")
    least = 1 if name == "nbytes" else 0
    wrong = np.flatnonzero((column < least) | (column > most))
    if len(wrong):
        raise ValueError(f"row {row + wrong[0]}: `{name}` is {column[wrong[0]]}; it goes from {least} to {most}")
    return column.astype(dtype)


def _within(columns: Mapping[str, npt.NDArray[Any]], layout: _Layout, row: int) -> None:
    buffer, offset, nbytes = columns["buffer"], columns["offset"], columns["nbytes"]
    wrong = np.flatnonzero(buffer >= len(layout.names))
    if len(wrong):
        raise ValueError(f"row {row + wrong[0]}: buffer {buffer[wrong[0]]}; there are {len(layout.names)}")
    wrong = np.flatnonzero(offset > layout.nbytes[buffer] - nbytes)
    if len(wrong):
        at = wrong[0]
        raise ValueError(
            f"row {row + at}: {nbytes[at]} bytes from {offset[at]} on are not in buffer `{layout.names[buffer[at]]}` "
            f"of {layout.nbytes[buffer[at]]} bytes"
        )


def _rows(columns: Mapping[str, npt.NDArray[Any]], layout: _Layout, numbers: _Sequence) -> dict[str, npt.NDArray[Any]]:
    address = layout.first[columns["buffer"]] + columns["offset"]
    first, last = address // _LINE, (address + columns["nbytes"] - 1) // _LINE
    return {
        "launch": columns["launch"],
        "gpu": columns["gpu"],
        "unit": columns["unit"],
        "sequence": numbers.of(columns).astype(np.uint32),
        "line": first.astype(np.uint64),
        "count": (last - first + 1).astype(np.uint32),
        "flags": columns["write"].astype(np.uint8),
    }


def _description(name: str, layout: _Layout, gpus: int) -> dict[str, str]:
    allocations = [
        {"address": int(first), "bytes": int(nbytes), "pinned": False}
        for first, nbytes in zip(layout.first, layout.nbytes, strict=True)
    ]
    described = {"name": name, "page_bytes": _PAGE, "gpus": gpus, "cycles": False, "allocations": allocations}
    return {"farside.trace.version": "1", "farside.trace": json.dumps(described)}
