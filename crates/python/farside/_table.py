"""Arrow tables in shared memory."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

    from farside._arguments import Array

Allocate = Callable[[int, str], "Array"]
"""So many bytes of shared memory with a name."""


def arrow() -> Any:
    """pyarrow, which the package does without as long as nobody has tables."""
    try:
        return importlib.import_module("pyarrow")
    except ImportError:
        raise ImportError("tables need pyarrow: pip install pyarrow") from None


def shared_table(source: Any, name: str, allocate: Allocate) -> pa.Table:
    """A copy of a table with each column in shared memory of its own.

    A column is written as an Arrow stream of its own and read where it lies: Arrow's own writer knows all types, and
    its reader takes what it finds without a copy.
    """
    pa = arrow()
    try:
        table = source if isinstance(source, pa.Table) else pa.table(source)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{type(source).__name__} is no table; wanted is one of Arrow, pandas or polars, or what has "
            f"__arrow_c_stream__: {error}"
        ) from None
    columns = [_shared_column(table, index, name, allocate) for index in range(table.num_columns)]
    return pa.Table.from_arrays([column for column, _ in columns], schema=pa.schema([field for _, field in columns]))


def _shared_column(table: pa.Table, index: int, name: str, allocate: Allocate) -> tuple[pa.ChunkedArray, pa.Field]:
    pa = arrow()
    field = table.schema.field(index)
    # In one piece: that is how a kernel gets it.
    column = pa.table([table.column(index)], schema=pa.schema([field])).unify_dictionaries().combine_chunks()
    size = pa.MockOutputStream()
    _write(column, size)
    memory = allocate(size.size(), f"{name}.{field.name}" if name else field.name)
    _write(column, pa.FixedSizeBufferWriter(pa.py_buffer(memory)))
    memory.flags.writeable = False
    found = pa.ipc.open_stream(pa.py_buffer(memory)).read_all()
    return found.column(0), found.schema.field(0)


def _write(column: pa.Table, sink: Any) -> None:
    with arrow().ipc.new_stream(sink, column.schema) as writer:
        writer.write_table(column)


def is_column(given: Any) -> bool:
    """Whether it is an array or a column of Arrow."""
    return hasattr(given, "__arrow_c_array__") or hasattr(given, "__arrow_c_stream__")


def values(column: Any) -> Array:
    """The values of a column where they lie, without a copy; not to be written."""
    pa = arrow()
    array = _in_one_piece(column)
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        array, kind = array.storage, kind.storage_type
    if not pa.types.is_primitive(kind) or kind.bit_width % 8 or kind.bit_width > 64:
        raise TypeError(f"a column of {kind} has no plain values; lend its parts, which farside.buffers() gives")
    if array.null_count:
        raise TypeError(
            f"a column with {array.null_count} nulls: fill them (column.fill_null), or lend its parts, which "
            "farside.buffers() gives"
        )
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        dtype = np.dtype(kind.to_pandas_dtype())
    else:
        dtype = np.dtype(f"i{kind.bit_width // 8}")
    if len(array) == 0:
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def buffers(column: Any) -> list[Array | None]:
    """The parts of a column where they lie, as bytes and in Arrow's order; None where the column needs none.

    Of values: which are valid, a bit each from the lowest on, and the values. Of text: which are valid, offsets, bytes.
    """
    parts = _in_one_piece(column).buffers()
    return [None if part is None else np.frombuffer(part, np.uint8) for part in parts]


def _in_one_piece(column: Any) -> pa.Array:
    pa = arrow()
    if not isinstance(column, (pa.Array, pa.ChunkedArray)):
        column = pa.chunked_array(column) if hasattr(column, "__arrow_c_stream__") else pa.array(column)
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks > 1:
        raise TypeError(f"a column in {column.num_chunks} pieces; Space.table makes it one")
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
