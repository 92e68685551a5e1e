"""Memory that the program has already."""

from __future__ import annotations

import array as arrays
import gc
import os

import numpy as np
import pytest
from test_processes import SLOW, run

import farside


def test_an_array_is_lent_where_it_is_and_is_ordinary_afterwards(space: farside.Space) -> None:
    whole = np.ones(300_000, dtype=np.int64)
    array = whole[7:-3]
    address = array.ctypes.data
    with space.adopt(array, name="mine") as shared:
        assert shared is array
        space.run("farside.increment", farside.write(shared))
        # It ran on card 0.
        assert space.migrate(shared, 1) > 0
        assert shared[[0, -1]].tolist() == [2, 2]
        space.run("farside.increment", farside.write(shared[1000:2000]))
    assert array.ctypes.data == address
    assert whole[[0, 6, -3, -1]].tolist() == [1] * 4
    assert array.sum() == 2 * array.size + 1000
    with pytest.raises(farside.FarsideError, match="no memory of this space"):
        space.run("farside.sum", farside.read(array))


@pytest.mark.parametrize("source", [bytearray(80_000), arrays.array("q", [0]) * 10_000])
def test_any_writable_buffer_is_shared(space: farside.Space, source: bytearray | arrays.array[int]) -> None:
    with space.adopt(source) as shared:
        assert shared.nbytes == 80_000
        space.run("farside.increment", farside.write(shared.view(np.int64)))
        with pytest.raises(BufferError):
            source.extend(source[:1])
    assert memoryview(source).cast("B").cast("q").tolist() == [1] * 10_000


def test_what_cannot_be_shared_is_said(space: farside.Space) -> None:
    array = np.zeros(10_000)
    with pytest.raises(TypeError, match="not contiguous"):
        space.adopt(array[::2])
    with pytest.raises(TypeError, match="list is no array"):
        space.adopt([1, 2, 3])  # type: ignore[arg-type]
    array.flags.writeable = False
    for read_only in (array, b"bytes"):
        with pytest.raises(TypeError, match="read only"):
            space.adopt(read_only)
    with pytest.raises(farside.FarsideError, match="cannot be adopted"):
        space.adopt(space.array(1000))
    with pytest.raises(farside.FarsideError, match="nothing to adopt"):
        space.adopt(np.zeros(0))
    again = np.zeros(10_000)
    adopted = space.adopt(again)
    with pytest.raises(farside.FarsideError, match="memory of the space already"):
        space.adopt(again[2000:4000])
    assert adopted.release() is again
    assert adopted.release() is again


def test_it_is_not_given_back_while_a_kernel_holds_it(space: farside.Space) -> None:
    array = np.zeros(50_000, dtype=np.int64)
    adopted = space.adopt(array)

    @farside.kernel(np.int64, [np.int64])
    def spin(rounds, words):  # type: ignore[no-untyped-def]
        for _ in range(rounds):
            for at in range(len(words)):
                words[at] += 1

    future = space.launch(spin, 2000, farside.write(array))
    with pytest.raises(farside.LentError, match="`spin`"):
        adopted.release()
    future.result()
    assert adopted.release() is array
    assert (array == 2000).all()


def test_what_nobody_gives_back_is_home_when_nothing_refers_to_it(space: farside.Space) -> None:
    array = np.zeros(50_000, dtype=np.int64)
    adopted = space.adopt(array)
    space.run("farside.increment", farside.write(array))
    future = space.launch("farside.increment", farside.write(array))
    del adopted
    gc.collect()
    # The kernel holds it until it has ended.
    future.result()
    del future
    assert array.sum() == 2 * array.size
    with space.adopt(array) as shared:
        space.run("farside.increment", farside.write(shared))
    assert array.sum() == 3 * array.size


def test_the_array_lives_as_long_as_it_is_shared(space: farside.Space) -> None:
    adopted = space.adopt(np.ones(100_000, dtype=np.int64))
    gc.collect()
    space.run("farside.increment", farside.write(adopted.array))
    with pytest.raises(ValueError, match="cannot resize"):
        adopted.array.resize(200_000)
    assert adopted.release().sum() == 200_000


def test_a_space_that_is_closed_leaves_it_in_use_until_it_is_given_back() -> None:
    array = np.ones(100_000, dtype=np.int64)
    space = farside.Space(cards=1, address_space=64 << 20)
    adopted = space.adopt(array)
    space.run("farside.increment", farside.write(array))
    space.migrate(array, 0)
    space.close()
    assert array.sum() == 200_000
    assert adopted.release() is array
    assert array.sum() == 200_000


def test_a_child_of_fork_has_a_copy_with_right_values(space: farside.Space) -> None:
    array = np.ones(100_000, dtype=np.int64)
    with space.adopt(array) as shared:
        space.run("farside.increment", farside.write(shared))
        space.migrate(shared, 1)
        child = os.fork()
        if child == 0:
            right = shared.sum() == 200_000
            shared[:] = 7
            os._exit(0 if right and (shared == 7).all() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert shared.sum() == 200_000
        space.run("farside.increment", farside.write(shared))
    assert array.sum() == 300_000


def test_the_interpreter_ends_while_an_array_is_shared_and_a_kernel_has_it() -> None:
    done = run(
        """
    import atexit, numpy as np
    mine = np.zeros(1 << 16)
    atexit.register(lambda: print("last", mine.shape, mine[-1] >= 0, flush=True))
    """
        + SLOW
        + """
    adopted = space.adopt(mine)
    space.launch(spin, 1_000_000, farside.write(mine))
    print("end", flush=True)
    """
    )
    assert done.stdout == "end\nlast (65536,) True\n", done.stderr
    assert done.returncode == 0, done.stderr
