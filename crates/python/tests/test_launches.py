"""Kernels, by name and by Numba."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import numpy as np
import pytest

import farside

READ, WRITE, SHARED = farside.read, farside.write, farside.shared


@farside.kernel(np.float32, [np.float32], [np.float32])
def saxpy(a, x, y):  # type: ignore[no-untyped-def]
    """y = a x + y."""
    for i in range(len(x)):
        y[i] += a * x[i]


@farside.kernel([np.int64])
def numbers(first, out):  # type: ignore[no-untyped-def]
    """Each element's own number."""
    for i in range(len(out)):
        out[i] = first + i


@farside.kernel(np.uint8, np.float64, np.int16, [np.float64])
def mixed(a, b, c, out):  # type: ignore[no-untyped-def]
    for i in range(len(out)):
        out[i] = a * 1e6 + b * 1e3 + c


@farside.kernel([np.int64], [np.int64])
def lookup(x, out):  # type: ignore[no-untyped-def]
    table = (10, 20, 30)
    for i in range(len(x)):
        if x[i] >= len(table):
            raise IndexError("beyond the table")
        out[i] = table[0] + x[i]


@farside.kernel(np.int64, [np.float64])
def spin(rounds, x):  # type: ignore[no-untyped-def]
    """Takes a while."""
    for _ in range(rounds):
        for i in range(len(x)):
            x[i] = x[i] * 0.5 + 1


def test_a_kernel_by_its_name(space: farside.Space) -> None:
    x, y = space.array(5000, np.float32), space.array(5000, np.float32)
    x.fill(1.5)
    y.fill(1)
    assert space.run("farside.saxpy", np.float32(2), READ(x), WRITE(y), card=1) == 5000
    assert (y == 4).all()
    assert "card 1" in space.where(x)[0].copies


def test_every_card_gets_it_and_pages_move(space: farside.Space) -> None:
    x = space.copy(np.ones(100_000, np.float32))
    y = space.array(100_000, np.float32)
    for card in space.cards:
        space.run(saxpy, 2, READ(x), WRITE(y), card=card)
    assert (y == 4).all()
    assert space.report().data["stats"]


@pytest.mark.parametrize("length", [1, 511, 512, 513, 4096, 1 << 20])
def test_numba_sees_each_element_once(space: farside.Space, length: int) -> None:
    out = space.array(length, np.int64)
    assert space.run(numbers, WRITE(out)) == length
    assert (out == np.arange(length)).all()


def test_numba_on_the_host_is_the_function_itself() -> None:
    y = np.ones(3, np.float32)
    saxpy(2, np.ones(3, np.float32), y)
    assert (y == 3).all()
    assert saxpy.__doc__ == "y = a x + y."


def test_values_of_all_sizes(space: farside.Space) -> None:
    out = space.array(1000)
    space.run(mixed, 7, 2.5, -3, WRITE(out))
    assert (out == 7e6 + 2.5e3 - 3).all()
    with pytest.raises(OverflowError, match="256"):
        space.run(mixed, 256, 2.5, -3, WRITE(out))


def test_an_exception_in_numba_fails_the_kernel(space: farside.Space) -> None:
    x, out = space.copy(np.zeros(600, np.int64)), space.array(600, np.int64)
    space.run(lookup, READ(x), WRITE(out))
    x[555] = 3
    with pytest.raises(farside.KernelError, match="lookup"):
        space.run(lookup, READ(x), WRITE(out))


def test_shared_words(space: farside.Space) -> None:
    text = space.copy(np.frombuffer(b"so it goes " * 5000, np.uint8))
    bins = space.array(256, np.uint64)
    futures = [space.launch("farside.histogram", READ(text), SHARED(bins), card=card) for card in space.cards]
    for future in futures:
        future.result()
    assert bins[ord("o")] == 2 * 5000 * 2
    with pytest.raises(TypeError, match="float64"):
        SHARED(space.array(3))


def test_a_part_of_an_array(space: farside.Space) -> None:
    out = space.array((10, 1000), np.int64)
    space.run(numbers, WRITE(out[3]))
    assert (out[3] == np.arange(1000)).all()
    assert not out[[0, 1, 2, 4, 9]].any()
    with pytest.raises(TypeError, match=r"argument 0 .from 0 on.: the array is not contiguous"):
        space.run(numbers, WRITE(out[:, 3]))


@pytest.mark.parametrize("given", [lambda x: None, 3, None])
def test_what_is_no_kernel_is_told_of(space: farside.Space, given: object) -> None:
    with pytest.raises(TypeError, match=r"is no kernel: .*farside\.kernel"):
        space.run(given, farside.write(space.array(8, np.int64)))  # type: ignore[arg-type]


def test_wrong_arguments_are_named(space: farside.Space) -> None:
    x = space.array(10, np.float32)
    with pytest.raises(farside.KernelError, match=r"did you mean `farside\.saxpy`"):
        space.run("farside.saxpi")
    with pytest.raises(farside.KernelError):
        space.run("farside.saxpy", np.float32(1))
    with pytest.raises(TypeError, match="byte order"):
        space.run("farside.sum", READ(space.array(10, ">u8")))
    with pytest.raises(TypeError, match=r"say how it is lent: farside\.read"):
        space.run("farside.sum", x)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"argument 1 .*str"):
        space.run("farside.saxpy", np.float32(1), "x")  # type: ignore[arg-type]
    with pytest.raises(farside.KernelError, match="an integer; wanted is a value of 4 bytes, a float"):
        space.run("farside.saxpy", np.int32(1), READ(x), WRITE(space.array(10, np.float32)))
    with pytest.raises(OverflowError):
        space.run("farside.saxpy", 1 << 65)
    with pytest.raises(TypeError, match="takes 3 arguments and was given 1"):
        space.run(saxpy, 1.0)
    with pytest.raises(TypeError, match="wanted is an array of float32"):
        space.run(saxpy, 1.0, READ(space.array(10)), WRITE(x))
    with pytest.raises(TypeError, match="no lent array"):
        space.run(saxpy, 1.0, 2, WRITE(x))
    out = space.array(10)
    with pytest.raises(TypeError, match=r"2\.5, a float; wanted is a value of uint8"):
        space.run(mixed, 2.5, 2.5, -3, WRITE(out))
    with pytest.raises(OverflowError, match="300, which is no uint8"):
        space.run(mixed, np.int64(300), 2.5, -3, WRITE(out))
    with pytest.raises(TypeError, match="wanted is a value of float32"):
        space.run(saxpy, READ(x), READ(x), WRITE(x))
    with pytest.raises(farside.KernelError, match="elements"):
        space.run(saxpy, 1.0, READ(space.array(9, np.float32)), WRITE(x))
    with pytest.raises(farside.FarsideError, match="no memory of this space"):
        space.run(saxpy, 1.0, READ(np.zeros(10, np.float32)), WRITE(x))
    with pytest.raises(farside.FarsideError, match="card 2"):
        space.run(saxpy, 1.0, READ(x), WRITE(space.array(10, np.float32)), card=2)
    with pytest.raises(ValueError, match="card -1"):
        space.run(numbers, WRITE(space.array(10, np.int64)), card=-1)
    frozen = space.array(10)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        WRITE(frozen)
    with pytest.raises(farside.FarsideError):
        space.run(saxpy, 1.0, READ(x), WRITE(x))


def test_kernels_that_numba_cannot_make() -> None:
    with pytest.raises(TypeError, match="has the parameters x and was given 2 types"):
        farside.kernel([np.int8], [np.int8])(lambda x: None)
    with pytest.raises(TypeError, match="a list of one type"):
        farside.kernel([np.int8, np.int8])(lambda x: None)
    with pytest.raises(TypeError, match="complex128"):
        farside.kernel([np.complex128])(lambda x: None)
    with pytest.raises(TypeError, match="at least one array"):
        farside.kernel(np.int8)(lambda x: None)


def test_what_is_lent_is_lent_to_one_only(space: farside.Space) -> None:
    x = space.array(4096)
    slow = space.launch(spin, 20_000, WRITE(x))
    with pytest.raises(farside.LentError, match=r"lent to kernel `spin`.*wait for it, or come after it"):
        space.launch(spin, 1, WRITE(x), card=1)
    with pytest.raises(farside.LentError):
        space.run("farside.sum", READ(x[4000:]), card=1)
    later = space.launch(spin, 1, WRITE(x), card=1, after=[slow])
    last = space.launch(spin, 1, WRITE(x), after=[later])
    last.result()
    assert slow.done()
    assert later.done()
    space.run(spin, 1, WRITE(x), card=1)


def test_one_stream_is_one_after_the_other(space: farside.Space) -> None:
    x, stream = space.array(1024), space.stream()
    futures = [space.launch(spin, 1, WRITE(x), card=index % 2, stream=stream) for index in range(20)]
    for future in futures:
        future.result()
    expected = np.zeros(1024)
    for _ in range(20):
        expected = expected * 0.5 + 1
    assert (x == expected).all()


def test_readers_share(space: farside.Space) -> None:
    x, outs = space.copy(np.ones(1 << 18, np.float32)), [space.array(1 << 18, np.float32) for _ in range(4)]
    futures = [space.launch(saxpy, n, READ(x), WRITE(out), card=n % 2) for n, out in enumerate(outs)]
    assert [future.result() for future in futures] == [1 << 18] * 4
    assert [out[-1] for out in outs] == [0, 1, 2, 3]


def test_memory_lives_until_its_kernel_has_ended(space: farside.Space) -> None:
    x = space.array(1 << 20)
    future = space.launch(spin, 2_000, WRITE(x))
    address = x.ctypes.data
    del x
    gc.collect()
    # Were it free, the next of that size would be there.
    assert space.array(1 << 20).ctypes.data != address
    assert not future.done()
    future.cancel()
    with pytest.raises(farside.KernelError):
        future.result()
    assert space.array(1 << 20).ctypes.data == address


def test_memory_is_free_when_its_kernel_has_ended() -> None:
    with farside.Space(cards=1, card_memory=16 << 20, address_space=16 << 20) as space:
        for _ in range(5):
            x = space.array(10 << 17)
            future = space.launch(spin, 1, WRITE(x))
            del x
            future.result()


def test_waiting_has_a_limit_and_a_kernel_can_be_stopped(space: farside.Space) -> None:
    x = space.array(1 << 20)
    future = space.launch(spin, 2_000, WRITE(x))
    with pytest.raises(TimeoutError, match="`spin` still runs"):
        future.result(timeout=0.01)
    assert not future.done()
    assert "running" in repr(future)
    future.cancel()
    with pytest.raises(farside.KernelError):
        future.result()
    with pytest.raises(farside.KernelError):
        future.result()
    assert "ended" in repr(future)


def test_a_time_limit(space: farside.Space) -> None:
    x = space.array(1 << 20)
    with pytest.raises(farside.KernelError):
        space.run(spin, 2_000, WRITE(x), time_limit=0.05)
    with pytest.raises(ValueError, match="time_limit"):
        space.run(spin, 1, WRITE(x), time_limit=-1)


def test_what_comes_after_a_failure_fails(space: farside.Space) -> None:
    x, out = space.copy(np.full(10, 5)), space.array(10, np.int64)
    bad = space.launch(lookup, READ(x), WRITE(out))
    behind = space.launch(numbers, WRITE(out), after=[bad])
    with pytest.raises(farside.FarsideError):
        behind.result()
    assert not out.any()


def test_futures_of_another_space_are_refused(space: farside.Space) -> None:
    with farside.Space(cards=1) as other:
        there = other.launch(numbers, WRITE(other.array(10, np.int64)))
        with pytest.raises(ValueError, match="another space"):
            space.launch(numbers, WRITE(space.array(10, np.int64)), after=[there])


def test_the_interpreter_runs_on_while_one_waits(space: farside.Space) -> None:
    x, counted, ended = space.array(1 << 20), 0, threading.Event()

    def wait() -> None:
        space.run(spin, 100, WRITE(x))
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    while not ended.wait(0.001):
        counted += 1
    thread.join()
    assert counted > 0


def test_threads_launch_at_the_same_time(space: farside.Space) -> None:
    outs = [space.array(3000, np.int64) for _ in range(8)]

    def work(out: np.ndarray[tuple[int], np.dtype[np.int64]], card: int) -> None:
        for _ in range(20):
            out.fill(0)
            space.run(numbers, WRITE(out), card=card)

    threads = [threading.Thread(target=work, args=(out, n % 2)) for n, out in enumerate(outs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((out == np.arange(3000)).all() for out in outs)


def test_kernels_are_stopped_by_one_thread_while_another_closes_the_space() -> None:
    space = farside.Space(cards=1)
    space.launch(spin, 1_000_000, WRITE(space.array(1 << 20)))
    closing = threading.Thread(target=space.close)
    closing.start()
    # It waits, and looks for signals now and then.
    time.sleep(0.2)
    assert closing.is_alive()
    space._space.cancel_all()
    closing.join(60)
    assert not closing.is_alive()


def test_futures_can_be_awaited(space: farside.Space) -> None:
    outs = [space.array(3000, np.int64) for _ in range(4)]

    async def main() -> list[int]:
        futures = [space.launch(numbers, WRITE(out), card=n % 2) for n, out in enumerate(outs)]
        return [await future for future in futures]

    assert asyncio.run(main()) == [3000] * 4


def test_an_error_in_the_body_of_with_stops_its_kernels() -> None:
    begin = time.monotonic()
    opened = farside.Space(cards=1)
    x = opened.array(1 << 20)

    def begin_and_fail(space: farside.Space) -> None:
        with space:
            space.launch(spin, 1_000_000, WRITE(x))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        begin_and_fail(opened)
    assert time.monotonic() - begin < 60
