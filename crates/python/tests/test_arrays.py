"""Arrays in shared memory."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import farside


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [(1, np.uint8), ((3, 5), np.float32), (4097, "<i2"), ((2, 2, 2), np.complex128), (7, "S11"), (9, "datetime64[s]")],
)
def test_an_array_is_zero_and_keeps_what_is_written(space: farside.Space, shape: object, dtype: object) -> None:
    array = space.array(shape, dtype)  # type: ignore[arg-type]
    assert array.dtype == np.dtype(dtype)  # type: ignore[call-overload]
    assert not array.view(np.uint8).any()
    assert array.ctypes.data % 4096 == 0
    wanted = np.frombuffer(bytes(range(1, 255)) * (array.nbytes // 254 + 1), np.uint8, array.nbytes)
    array.view(np.uint8).reshape(-1)[...] = wanted
    assert (array.view(np.uint8).reshape(-1) == wanted).all()


def test_structured_types(space: farside.Space) -> None:
    flights = space.array(10, [("carrier", "S2"), ("delay", "<f4")], name="flights")
    flights[3] = (b"UA", 2.5)
    assert flights["delay"].sum() == 2.5
    assert flights["carrier"][3] == b"UA"


def test_a_copy_is_equal(space: farside.Space) -> None:
    source = np.arange(12.0).reshape(3, 4).T
    shared = space.copy(source)
    assert (shared == source).all()
    assert shared.shape == (4, 3)


def test_empty_arrays_take_nothing(space: farside.Space) -> None:
    assert space.array(0).shape == (0,)
    assert space.array((5, 0, 2), np.int8).shape == (5, 0, 2)


def test_memory_is_given_back_with_its_last_view() -> None:
    with farside.Space(cards=1, card_memory=1 << 20, address_space=8 << 20) as space:
        for _ in range(20):
            array = space.array(6 << 20, np.uint8)
            view = array[4096 : 5 << 20].view(np.uint64)
            del array
            gc.collect()
            with pytest.raises(farside.FarsideError):
                space.array(6 << 20, np.uint8)
            view[7] = 9
            del view
            gc.collect()


def test_arrays_outlive_their_space() -> None:
    with farside.Space(cards=1) as space:
        array = space.copy(np.arange(5000))
        space.migrate(array, 0)
    assert array.sum() == 4999 * 2500
    with pytest.raises(farside.FarsideError, match="closed"):
        space.array(1)
    space.close()


def test_what_cannot_be_shared_is_named(space: farside.Space) -> None:
    with pytest.raises(TypeError, match="references to Python objects"):
        space.array(3, object)
    with pytest.raises(TypeError, match="references to Python objects"):
        space.copy([object()])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="shape"):
        space.array(-1)
    with pytest.raises(ValueError, match="addresses"):
        space.array(1 << 62, np.float64)
    with pytest.raises(farside.FarsideError):
        space.array(1 << 60, np.uint8)
    for call in (space.where, space.why, lambda a: space.migrate(a, 0), lambda a: space.pin(a, 1)):
        with pytest.raises(farside.FarsideError, match="0x"):
            call(np.zeros(10))
    with pytest.raises(TypeError, match="list is no NumPy array"):
        space.where([1, 2])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not contiguous"):
        space.where(space.array(10)[::2])


def test_moves_are_counted_and_told(space: farside.Space) -> None:
    array = space.copy(np.ones(8192), name="ones")
    assert space.migrate(array, 1) == 16
    parts = space.where(array)
    assert [part.owner for part in parts] == ["card 1"]
    assert sum(part.nbytes for part in parts) == 16 * 4096
    assert parts[0].address == array.ctypes.data
    assert parts[0].state == "card"
    assert space.migrate(array[:512], farside.HOST) == 1
    assert [part.owner for part in space.where(array)] == ["host", "card 1"]
    assert "ones" in space.why(array)
    assert space.prefetch(array, 0) == 16
    assert array.sum() == 8192
    report = space.report()
    assert "ones" in str(report)
    assert report.data["stats"]
    assert report._repr_html_().startswith("<pre>")


def test_pins_advice_and_rights(space: farside.Space) -> None:
    array = space.copy(np.ones(1024, np.float32))
    space.pin(array, 0)
    assert [part.owner for part in space.where(array)] == ["card 0"]
    space.unpin(array)
    with pytest.raises(farside.FarsideError):
        space.unpin(array)
    space.advise(array, "read_mostly")
    space.advise(array, "preferred", memory=1)
    space.advise(array, "accessed_by", memory=farside.HOST)
    with pytest.raises(ValueError, match="memory="):
        space.advise(array, "accessed_by")
    with pytest.raises(ValueError, match="read_mostly, whole_blocks"):
        space.advise(array, "often")
    space.set_read_only(array)
    with pytest.raises(farside.KernelError):
        space.run("farside.saxpy", np.float32(1), farside.read(space.array(1024, np.float32)), farside.write(array))
    space.set_read_only(array, False)
    space.run("farside.saxpy", np.float32(1), farside.read(space.array(1024, np.float32)), farside.write(array))


def test_memories_that_there_are_not(space: farside.Space) -> None:
    array = space.array(10)
    with pytest.raises(farside.FarsideError, match="card 2"):
        space.migrate(array, 2)
    with pytest.raises(farside.FarsideError):
        space.migrate(array, 1 << 40)
    with pytest.raises(ValueError, match="no memory -2"):
        space.migrate(array, -2)


def test_dlpack_is_no_copy(space: farside.Space) -> None:
    array = space.array(1000, np.float32)
    other = np.from_dlpack(array)
    array[5] = 3
    assert other[5] == 3
    assert other.ctypes.data == array.ctypes.data


def test_arrow_over_shared_memory_is_no_copy(space: farside.Space) -> None:
    arrow = pytest.importorskip("pyarrow")
    array = space.copy(np.arange(1000))
    column = arrow.Array.from_buffers(arrow.int64(), 1000, [None, arrow.py_buffer(array)])
    array[999] = -1
    assert column[999].as_py() == -1
    assert column.buffers()[1].address == array.ctypes.data


def test_large_pages_move_in_blocks() -> None:
    with farside.Space(cards=1, large_pages=True) as space:
        array = space.array(1 << 20, np.uint32)
        array[5] = 7
        blocks = space.report().data["large_pages"]
        assert blocks["wanted"] == 2, blocks
        space.run("farside.fill", farside.write(array[1024:1536].view(np.uint64)), 9)
        assert space.where(array)[0].nbytes == 2 << 20
        assert array[5] == 7


def test_settings_that_cannot_be() -> None:
    for settings in ({"cards": 0}, {"cards": 17}, {"card_memory": 1}, {"placement": "none"}, {"cards": "nowhere:1"}):
        with pytest.raises(ValueError):  # noqa: PT011 # each says something else
            farside.Space(**settings)
    with pytest.raises(farside.KernelError, match="no-such"):
        farside.Space(kernel_libraries=["/no-such.so"])
