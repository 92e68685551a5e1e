"""Columns of Arrow that kernels in C build in a card's own memory."""

from __future__ import annotations

import datetime
import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farside

pa = pytest.importorskip("pyarrow")

OWN = 16 << 20


def columns(space: farside.Space, rows: int, step: int = 0, first: int = 0, card: int = 0) -> Any:
    """Numbers and their digits; every `step`th row is null, from `first` on."""
    made = space.array(2, farside.MADE_COLUMN)
    space.run("o.columns", farside.write(made.view(np.uint64)), rows, step, first, card=card)
    return made.copy()


def expected(rows: int, step: int, first: int) -> list[int | None]:
    return [None if step and n >= first and n % step == 0 else -n for n in range(rows)]


@pytest.mark.parametrize(("rows", "step", "first"), [(0, 0, 0), (1, 1, 0), (8, 0, 0), (10_001, 7, 5000), (300, 3, 0)])
def test_a_column_becomes_one_of_arrow_without_a_copy(own: farside.Space, rows: int, step: int, first: int) -> None:
    made = columns(own, rows, step, first, card=1)
    numbers, texts = own.take_over_column(1, made[0], np.int32), own.take_over_column(1, made[1], str)
    assert (len(numbers), len(texts)) == (rows, rows)
    n, t = pa.array(numbers), pa.array(texts)
    n.validate(full=True)
    t.validate(full=True)
    assert (n.type, t.type) == (pa.int32(), pa.string())
    wanted = expected(rows, step, first)
    assert n.to_pylist() == wanted
    assert t.to_pylist() == [None if value is None else str(value) for value in wanted]
    assert n.null_count == t.null_count == wanted.count(None)
    if rows:
        assert n.buffers()[1].address == made[0]["values"]["address"]
        assert t.buffers()[1].address == made[1]["offsets"]["address"]


def test_a_table_of_such_columns_for_polars_and_pandas(own: farside.Space) -> None:
    polars = pytest.importorskip("polars")
    made = columns(own, 1000, 10)
    named = {"n": own.take_over_column(0, made[0], np.int32), "t": own.take_over_column(0, made[1], str)}
    batch = pa.record_batch({name: pa.array(column) for name, column in named.items()})
    batch.validate(full=True)
    assert batch.to_pandas()["n"].isna().sum() == 100
    assert polars.from_arrow(batch)["t"].to_list() == batch["t"].to_pylist()
    assert polars.Series(named["n"]).to_list() == expected(1000, 10, 0)


def test_days_are_the_integers_that_a_kernel_has_built(own: farside.Space) -> None:
    made = columns(own, 100, 7)
    with pytest.raises(farside.FarsideError, match="fewer bytes"):
        own.take_over_column(0, made[0], "datetime64[us]")
    days = pa.array(own.take_over_column(0, made[0], datetime.date))
    days.validate(full=True)
    assert days.type == pa.date32()
    assert days[99].as_py() == datetime.date(1969, 9, 24)
    assert days.null_count == 15


def test_truth_values_are_bytes_of_a_kernel_and_become_bits(own: farside.Space) -> None:
    made = own.array(1, farside.MADE_COLUMN)
    own.run("o.flags", farside.write(made.view(np.uint64)), 1000, card=1)
    flags = pa.array(own.take_over_column(1, made[0], bool))
    flags.validate(full=True)
    assert flags.type == pa.bool_()
    assert flags.to_pylist() == [None if n % 7 == 0 else n % 3 == 0 for n in range(1000)]
    made = columns(own, 100, 7, card=1)
    with pytest.raises(farside.FarsideError, match="more bytes"):
        own.take_over_column(1, made[0], bool)


def test_it_lives_as_long_as_arrays_of_it_and_kernels(own: farside.Space) -> None:
    made = columns(own, 100_000)
    own.take_over_column(0, made[1], str)
    numbers = own.take_over_column(0, made[0], np.int32)
    gc.collect()
    taken = 98 * 4096
    assert own.own_memory_free(0) == OWN - taken
    array = pa.array(numbers)
    del numbers
    gc.collect()
    assert own.own_memory_free(0) == OWN - taken
    # Its values are lent to a kernel of the other card, by the pointer.
    assert own.run("farside.sum", farside.read(farside.values(array).view(np.uint64)), card=1) > 0
    own.close()
    assert array[99_999].as_py() == -99_999
    part = array.slice(50_000, 2)
    del array
    gc.collect()
    assert part.to_pylist() == [-50_000, -50_001]


def test_what_is_no_such_column_is_refused_and_stays(own: farside.Space) -> None:
    made = columns(own, 100, 7)
    kind: Any
    for kind, why in [(str, "100 values, 0 offsets"), (np.float64, "fewer bytes"), (np.int16, "more bytes")]:
        with pytest.raises(farside.FarsideError, match=why):
            own.take_over_column(0, made[0], kind)
    for kind in (np.complex128, ">i4", "S4", object):
        with pytest.raises(TypeError, match="there are no columns of"):
            own.take_over_column(0, made[0], kind)
    with pytest.raises(ValueError, match="card -1"):
        own.take_over_column(-1, made[0], np.int32)
    with pytest.raises(farside.FarsideError, match="none has"):
        own.take_over_column(1, made[0], np.int32)
    assert pa.array(own.take_over_column(0, made[0], np.int32)).null_count == 15
    with pytest.raises(farside.FarsideError, match="taken over before"):
        own.take_over_column(0, made[0], np.int32)


def test_texts_that_are_none(own: farside.Space) -> None:
    made = own.array(1, farside.MADE_COLUMN)
    own.run("o.no_texts", farside.write(made.view(np.uint64)), 0)
    column = own.take_over_column(0, made[0], str)
    with pytest.raises(farside.FarsideError, match=r"row 1 is no UTF-8"):
        pa.array(column)


def test_columns_of_a_card_in_another_process(served_own: str, own_kernels: Path) -> None:
    with farside.Space(served_own, kernel_libraries=[own_kernels]) as space:
        made = columns(space, 5000, 3)
        numbers = pa.array(space.take_over_column(0, made[0], np.int32))
        texts = pa.array(space.take_over_column(0, made[1], str))
        assert numbers.to_pylist() == expected(5000, 3, 0)
        assert numbers.buffers()[1].address == made[0]["values"]["address"]
        # That process could change them when they have been checked, or counted.
        for which, part in enumerate(("validity", "offsets", "values")):
            assert texts.buffers()[which].address != made[1][part]["address"]
        assert numbers.buffers()[0].address != made[0]["validity"]["address"]
        texts.validate(full=True)
        assert texts[4].as_py() == "-4"
