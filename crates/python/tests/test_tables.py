"""Arrow tables in shared memory."""

from __future__ import annotations

import datetime
import gc
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import farside

NUMBERS = {"n": pa.array([1, 2, 3], pa.int32()), "x": pa.array([0.5, -1, 8], pa.float64())}


def everything() -> pa.Table:
    """Columns of many types, with nulls and without."""
    day = datetime.date(2013, 1, 1)
    return pa.table(
        {
            "int8": pa.array([1, None, -3], pa.int8()),
            "uint64": pa.array([1, 2, (1 << 64) - 1], pa.uint64()),
            "half": pa.array(np.array([1, 2, 3], np.float16)),
            "bool": pa.array([True, None, False]),
            "date": pa.array([day, day, None]),
            "time": pa.array([0, 1, 2], pa.timestamp("us", "UTC")),
            "decimal": pa.array([1, 2, 3], pa.decimal128(20, 2)),
            "text": pa.array(["", "long enough to be no short one", None]),
            "large": pa.array(["a", "b", "c"], pa.large_string()),
            "view": pa.array(["a", "a text that is longer than twelve bytes", None], pa.string_view()),
            "list": pa.array([[1, 2], [], None]),
            "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
            "dictionary": pa.array(["u", "v", "u"]).dictionary_encode(),
            "null": pa.nulls(3),
            "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        }
    )


def is_shared(space: farside.Space, buffer: pa.Buffer) -> bool:
    """Whether a part of a column lies in the space: it has a place there."""
    return bool(space.where(np.frombuffer(buffer, np.uint8)))


@pytest.mark.parametrize("name", everything().column_names)
@pytest.mark.parametrize("part", [slice(0, 3), slice(1, 3), slice(0, 0)])
def test_a_column_of_any_type_is_equal_and_in_shared_memory(space: farside.Space, name: str, part: slice) -> None:
    source = everything().select([name]).slice(part.start, part.stop - part.start)
    table = space.table(source, name="t")
    table.validate(full=True)
    assert table.equals(source)
    assert table.schema.equals(source.schema)
    for chunk in table.column(0).chunks:
        assert all(is_shared(space, buffer) for buffer in chunk.buffers() if buffer is not None and buffer.size)


def test_a_column_in_pieces_becomes_one(space: farside.Space) -> None:
    one = everything()
    other = one.slice(1).set_column(12, "dictionary", pa.array(["w", "u"]).dictionary_encode())
    table = space.table(pa.concat_tables([one, other]))
    assert table.num_rows == 5
    assert all(column.num_chunks == 1 for column in table.columns)
    assert table.column("dictionary").to_pylist() == ["u", "v", "u", "w", "u"]
    assert table.column("text").to_pylist() == [*one.column("text").to_pylist(), *other.column("text").to_pylist()]


def test_pandas_and_polars_both_ways(space: farside.Space) -> None:
    frame = pd.DataFrame({"n": np.arange(10_000), "who": ["UA", "DL"] * 5000})
    table = space.table(frame, name="flights")
    pd.testing.assert_frame_equal(table.to_pandas(), frame, check_dtype=False)
    polars = pl.DataFrame(table)
    assert polars.equals(pl.from_pandas(frame))
    assert polars["n"].to_numpy(allow_copy=False).ctypes.data == farside.values(table["n"]).ctypes.data
    again = space.table(polars)
    assert again["n"].to_pylist() == frame["n"].to_list()
    assert again["who"].to_pylist() == frame["who"].to_list()


class Foreign:
    """What any library may give: nothing but the interface."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def test_whatever_has_the_interface_is_a_table(space: farside.Space) -> None:
    source = everything()
    assert space.table(Foreign(source)).equals(source)
    assert space.table(source.to_batches()[0]).equals(source)
    assert space.table({"n": [1, 2]}).column("n").to_pylist() == [1, 2]
    for wrong in [7, "flights.csv", None, object()]:
        with pytest.raises(TypeError, match="is no table"):
            space.table(wrong)


def test_a_kernel_reads_a_column(space: farside.Space) -> None:
    rows = 100_000
    table = space.table(pa.table({"x": np.arange(rows, dtype=np.float32)}), name="t")
    y = space.array(rows, np.float32)
    space.run("farside.saxpy", np.float32(2), farside.read(table["x"]), farside.write(y), card=1)
    assert (y == 2 * np.arange(rows, dtype=np.float32)).all()
    assert space.where(farside.values(table["x"]))[0].copies
    space.run("farside.saxpy", np.float32(1), farside.read(table["x"].chunk(0)[10:20]), farside.write(y[:10]))
    assert (y[:10] == 2 * np.arange(10) + np.arange(10, 20)).all()


def test_a_column_is_never_written(space: farside.Space) -> None:
    column = space.table(NUMBERS)["n"]
    with pytest.raises(TypeError, match="never changes"):
        farside.write(column)
    with pytest.raises(ValueError, match="read-only"):
        farside.write(farside.values(column))
    with pytest.raises(ValueError, match="read-only"):
        farside.values(column)[0] = 1


def test_what_is_lent_of_a_column_is_said(space: farside.Space) -> None:
    table = space.table(everything())
    for name, why in [
        ("int8", "1 nulls"),
        ("text", "no plain values"),
        ("bool", "no plain values"),
        ("list", "no plain"),
    ]:
        with pytest.raises(TypeError, match=why):
            farside.read(table[name])
    valid, values = farside.buffers(table["int8"])
    assert valid is not None
    assert values is not None
    assert valid[0] & 7 == 0b101
    assert values.view(np.int8)[[0, 2]].tolist() == [1, -3]
    assert farside.values(table["date"].fill_null(datetime.date(1970, 1, 2))).tolist() == [15706, 15706, 1]
    with pytest.raises(TypeError, match="2 pieces"):
        farside.read(pa.chunked_array([[1], [2]]))
    mine = farside.write(space.array(1, np.float32))
    with pytest.raises(farside.FarsideError, match="no memory of this space"):
        space.run("farside.saxpy", np.float32(1), farside.read(pa.array([1.0], pa.float32())), mine)


def test_a_column_keeps_its_memory_and_gives_it_back() -> None:
    rows = 1 << 19
    with farside.Space(cards=1, card_memory=1 << 20, address_space=8 << 20) as space:
        for _ in range(5):
            table = space.table({"n": np.arange(rows)})
            view = farside.values(table["n"])[5:7]
            del table
            gc.collect()
            assert view.tolist() == [5, 6]
            with pytest.raises(farside.FarsideError):
                space.table({"n": np.arange(rows)})
            del view
            gc.collect()


def test_a_table_outlives_its_space() -> None:
    with farside.Space(cards=1, address_space=8 << 20) as space:
        table = space.table(NUMBERS)
    assert table.to_pydict() == {"n": [1, 2, 3], "x": [0.5, -1, 8]}
    with pytest.raises(farside.FarsideError):
        space.table(NUMBERS)


def test_without_pyarrow_the_rest_works_and_a_table_says_what_is_missing() -> None:
    program = """
import sys
sys.modules["pyarrow"] = None
import farside
with farside.Space(cards=1) as space:
    space.array(5).fill(1)
    try:
        space.table({})
    except ImportError as error:
        print(error)
"""
    found: Any = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "tables need pyarrow: pip install pyarrow\n"
