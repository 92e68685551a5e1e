"""A card's own memory, from Python and from kernels in C."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farside

OWN = 16 << 20
PAGE = 4096


@farside.kernel(np.int64, [np.int64])
def add(n, out):  # type: ignore[no-untyped-def]
    for i in range(len(out)):
        out[i] += n


@farside.kernel(np.int64, [np.float64])
def spin(rounds, x):  # type: ignore[no-untyped-def]
    """Takes a while."""
    for _ in range(rounds):
        for i in range(len(x)):
            x[i] = x[i] * 0.5 + 1


def made(space: farside.Space, count: int, card: int = 0) -> Any:
    """What `o.grow` makes of the numbers below `count`: the even ones, as uint32, and the odd ones, as uint64."""
    both = space.array(2, farside.MADE)
    assert space.run("o.grow", farside.write(both.view(np.uint64)), count, card=card) == np.arange(1, count, 2).sum()
    return both.copy()


def test_an_array_on_a_card_is_zero_and_everybodys(own: farside.Space) -> None:
    x = own.array_on(1, (3, 1000), np.int64)
    assert x.shape == (3, 1000)
    assert not x.any()
    assert own.own_memory_free(1) == OWN - 6 * PAGE
    x[1] = np.arange(1000)
    for card in own.cards:
        own.run(add, 5, farside.write(x[1]), card=card)
    assert (x[1] == np.arange(1000) + 10).all()
    assert not x[[0, 2]].any()
    assert own.own_memory_free(0) == OWN


def test_it_is_free_with_its_last_view(own: farside.Space) -> None:
    x = own.array_on(0, 10_000, np.uint8)
    x.fill(7)
    view = x[5000:9000].view(np.uint32)
    del x
    gc.collect()
    assert own.own_memory_free(0) == OWN - 3 * PAGE
    assert (view == 0x07070707).all()
    del view
    gc.collect()
    assert own.own_memory_free(0) == OWN
    assert not own.array_on(0, OWN, np.uint8).any()


def test_it_lives_until_its_kernel_has_ended(own: farside.Space) -> None:
    x = own.array_on(0, 1000, np.uint64)
    # A pointer that leads to itself is followed on the card whose memory it is, and on another one.
    x[5] = address = x[5:].ctypes.data
    futures = [own.launch("farside.chase", farside.read(x), address, 1 << 60, card=card) for card in own.cards]
    del x
    gc.collect()
    for future in futures:
        assert not future.done()
        assert own.own_memory_free(0) == OWN - 2 * PAGE
        future.cancel()
        with pytest.raises(farside.KernelError):
            future.result()
    assert own.own_memory_free(0) == OWN


def test_arrays_outlive_their_space() -> None:
    with farside.Space(cards=1, card_window=OWN) as space:
        x = space.array_on(0, 5000, np.int64)
        x[:] = np.arange(5000)
        space.run(add, 1, farside.write(x))
    assert x.sum() == 5000 * 5001 // 2
    x[0] = 9
    with pytest.raises(farside.FarsideError, match="closed"):
        space.array_on(0, 1)
    with pytest.raises(farside.FarsideError, match="closed"):
        space.own_memory_free(0)


def test_what_a_kernel_in_c_makes_is_taken_over_once(own: farside.Space) -> None:
    for card in own.cards:
        both = made(own, 300_001, card)
        assert own.own_memory_free(card) == OWN - (147 + 293) * PAGE
        evens = own.take_over(card, both[0], np.uint32)
        odds = own.take_over(card, both[1], np.uint64)
        assert (evens == np.arange(0, 300_001, 2)).all()
        assert (odds == np.arange(1, 300_001, 2)).all()
        assert (evens.ctypes.data, odds.ctypes.data) == tuple(both["address"])
        # The pointer is good on both cards, for reading and for writing.
        for other in own.cards:
            own.run(add, 1, farside.write(odds.view(np.int64)), card=other)
        assert odds[-1] == 300_001
        with pytest.raises(farside.FarsideError, match="taken over before"):
            own.take_over(card, both[0], np.uint32)
        del evens, odds
        gc.collect()
        assert own.own_memory_free(card) == OWN


def test_empty_vectors(own: farside.Space) -> None:
    both = made(own, 1)
    assert own.take_over(0, both[0], np.uint32).tolist() == [0]
    assert own.take_over(0, both[1], np.uint64).shape == (0,)
    assert own.array_on(0, (0, 5)).shape == (0, 5)


def test_a_copy_frees_the_cards_memory(own: farside.Space) -> None:
    both = made(own, 5000)
    evens, odds = own.take_over(0, both[0], np.uint32, copy=True), own.take_over(0, both[1], np.uint64, copy=True)
    assert own.own_memory_free(0) == OWN
    assert (evens == np.arange(0, 5000, 2)).all()
    assert (odds == np.arange(1, 5000, 2)).all()
    odds[0] = 7
    with pytest.raises(farside.FarsideError, match="no memory of this space"):
        own.run("farside.sum", farside.read(odds))


def test_what_cannot_be_mapped_is_a_copy(own_kernels: Path) -> None:
    allowed = int(Path("/proc/sys/vm/max_map_count").read_text())
    pages = allowed // 4 * 3 + 500
    if pages > 1 << 16:
        pytest.skip(f"a process may have {allowed} mappings here, and the kernel of this test fewer pages")
    window = 2 * pages * PAGE
    with farside.Space(cards=1, address_space=64 << 20, card_window=window, kernel_libraries=[own_kernels]) as space:
        vector = space.array(1, farside.MADE)
        words = space.run("o.scatter", farside.write(vector.view(np.uint64)), pages, 2 * pages)
        assert words == pages * 512
        copy = space.take_over(0, vector[0], np.uint64)
        assert copy.ctypes.data != vector["address"][0]
        assert (copy == np.arange(words, dtype=np.uint64)).all()
        assert space.own_memory_free(0) == window
        with pytest.raises(farside.FarsideError, match="no memory of this space"):
            space.run("farside.sum", farside.read(copy))


def test_what_was_not_made_is_refused(own: farside.Space) -> None:
    both = made(own, 5000)
    for address, length, kind, why in [
        (int(both["address"][0]), 2500, np.float64, "fewer bytes"),
        (int(both["address"][0]) + PAGE, 1, np.uint8, "none has"),
        (0, 5, np.uint8, "handed over"),
        ((1 << 64) - 8, 5, np.uint64, "handed over"),
        (int(both["address"][0]), 1 << 63, np.uint32, "handed over"),
        (int(both["address"][0]), 2500, np.uint16, "more bytes"),
    ]:
        with pytest.raises(farside.FarsideError, match=why):
            own.take_over(0, (address, length), kind)
    with pytest.raises(farside.FarsideError, match="none has"):
        own.take_over(1, both[0], np.uint32)
    with pytest.raises(TypeError, match="references to Python objects"):
        own.take_over(0, both[0], object)
    with pytest.raises(TypeError, match="elements without bytes"):
        own.take_over(0, both[0], "S0")
    assert (own.take_over(0, both[0], np.uint32) == np.arange(0, 5000, 2)).all()


def test_bad_requests_are_named(own: farside.Space, space: farside.Space) -> None:
    with pytest.raises(farside.FarsideError, match=f"{OWN} bytes are free"):
        own.array_on(0, OWN + 1, np.uint8)
    with pytest.raises(farside.FarsideError, match="ask for less"):
        own.array_on(0, 1 << 50, np.uint8)
    with pytest.raises(ValueError, match="addresses"):
        own.array_on(0, 1 << 62)
    with pytest.raises(ValueError, match="shape"):
        own.array_on(0, -1)
    with pytest.raises(TypeError, match="references to Python objects"):
        own.array_on(0, 3, object)
    calls: list[Any] = [own.array_on, own.take_over]
    for call in calls:
        with pytest.raises(ValueError, match="card -1"):
            call(-1, (4096, 1), np.uint8)
        with pytest.raises(farside.FarsideError, match="card 2"):
            call(2, (4096, 1), np.uint8)
    for call in (lambda: space.array_on(0, 1), lambda: space.own_memory_free(0)):
        with pytest.raises(farside.FarsideError, match="card_window"):
            call()
    with pytest.raises(ValueError, match="4 TiB"):
        farside.Space(cards=1, card_window=5 << 40)
    assert own.own_memory_free(0) == OWN


def test_it_does_not_move(own: farside.Space) -> None:
    x = own.array_on(1, 100)
    calls = (own.unpin, own.set_read_only, lambda a: own.migrate(a, 0), lambda a: own.pin(a, 1))
    for call in (*calls, lambda a: own.prefetch(a, farside.HOST), lambda a: own.advise(a, "read_mostly")):
        with pytest.raises(farside.FarsideError, match="card 1's own memory, which stays where it is"):
            call(x)
    assert [(part.state, part.owner, part.nbytes) for part in own.where(x)] == [("own", "card 1, memory0", PAGE)]
    assert own.why(x[50:]).endswith("are card 1's own memory, in memory0: they stay there")


def test_two_kernels_get_what_one_may_have(own: farside.Space) -> None:
    x = own.array_on(0, 4096)
    slow = own.launch(spin, 20_000, farside.write(x))
    with pytest.raises(farside.LentError, match="lent to kernel `spin`"):
        own.launch(spin, 1, farside.write(x[4000:]), card=1)
    own.launch(spin, 1, farside.write(x), card=1, after=[slow]).result()
    assert slow.done()


def test_a_child_of_fork_is_refused(own: farside.Space) -> None:
    x = own.array_on(0, 1000)
    x.fill(3)
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (
            lambda: own.array_on(0, 1),
            lambda: own.own_memory_free(0),
            lambda: own.take_over(0, (1, 1), "u1"),
        ):
            try:
                call()
            except farside.FarsideError as error:
                refused += "made by fork" in str(error)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        x[0] = 1
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGSEGV
    child = os.fork()
    if child == 0:
        # Nothing of the parent's is freed by it.
        del x
        gc.collect()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (x == 3).all()
    assert own.own_memory_free(0) == OWN - 2 * PAGE


def test_a_card_in_a_process_of_its_own(served_own: str, own_kernels: Path) -> None:
    with farside.Space(served_own, kernel_libraries=[own_kernels]) as space:
        both = made(space, 100_000)
        odds = space.take_over(0, both[1], np.uint64)
        evens = space.take_over(0, both[0], np.uint32, copy=True)
        assert (evens == np.arange(0, 100_000, 2)).all()
        x = space.array_on(0, 50_000, np.uint64)
        x[:] = odds
        assert space.run("farside.sum", farside.read(x)) == 2_500_000_000
        del evens, both
    # Its card serves this program as long as an array is there.
    assert (odds == x).all()
    assert odds.sum() == 2_500_000_000


MEMORIES = [("ddr", 8 << 20), ("hbm", 1 << 20), ("ddr", 1 << 20)]


def test_an_array_is_in_the_memory_that_it_chose() -> None:
    with farside.Space(cards=2, address_space=64 << 20, card_window=MEMORIES) as space:
        assert [(own.name, own.kind, own.nbytes) for own in space.own_memories(1)] == [
            ("ddr0", "ddr", 8 << 20),
            ("hbm0", "hbm", 1 << 20),
            ("ddr1", "ddr", 1 << 20),
        ]
        chosen: list[tuple[int | str, int]] = [(0, 0), ("ddr0", 0), (1, 1), ("hbm", 1), ("hbm0", 1), ("ddr1", 2)]
        for memory, number in chosen:
            before = [own.free for own in space.own_memories(1)]
            x = space.array_on(1, 1000, np.int64, memory=memory)
            before[number] -= 2 * PAGE
            assert [own.free for own in space.own_memories(1)] == before
            assert space.own_memory_free(1, memory) == before[number]
            assert space.own_memory_free(1) == sum(before)
            space.run(add, 5, farside.write(x), card=0)
            assert (x == 5).all()
            del x
            gc.collect()
        assert space.own_memory_free(1) == space.own_memory_free(0) == 10 << 20


def test_a_memory_that_is_full_or_is_not_there_is_an_error() -> None:
    with farside.Space(cards=1, address_space=64 << 20, card_window=MEMORIES) as space:
        full = space.array_on(0, 1 << 20, np.uint8, memory="hbm0")
        with pytest.raises(farside.FarsideError, match=r"0 bytes of hbm0 are free, and 8388608 bytes of ddr0"):
            space.array_on(0, 1, np.uint8, memory=1)
        assert not space.array_on(0, 1, np.uint8).any()
        del full
        for memory in (3, 15, 255):
            with pytest.raises(farside.FarsideError, match=r"there are 0 \(ddr0\), 1 \(hbm0\), 2 \(ddr1\)"):
                space.array_on(0, 1, memory=memory)
            with pytest.raises(farside.FarsideError, match="no memory number"):
                space.own_memory_free(0, memory)
        for memory in (-1, 256, 1 << 40):
            with pytest.raises(ValueError, match="no memory number"):
                space.array_on(0, 1, memory=memory)
        for name in ("ddr", "bram0", ""):
            with pytest.raises(farside.FarsideError, match="it has ddr0, hbm0, ddr1"):
                space.array_on(0, 1, memory=name)
    senseless: list[tuple[Any, str]] = [
        ([("gddr", 4096)], "no kind of memory"),
        ([("hbm", 4097)], "no whole pages"),
        ([("hbm", 4096), ("ddr", 0)], "ddr0 has no page"),
        ([("hbm", 4096)] * 16, "1 to 15 memories"),
        (-1, "less than nothing"),
    ]
    for window, why in senseless:
        with pytest.raises(ValueError, match=why):
            farside.Space(cards=1, card_window=window)


def test_a_copy_on_a_card_is_read_and_written_by_nobody() -> None:
    with farside.Space(cards=2, address_space=64 << 20, card_window=MEMORIES) as space:
        numbers = np.arange(3000, dtype=np.uint64).reshape(3, 1000)
        table = space.copy_on(1, numbers.T, memory="hbm")
        assert (table == numbers.T).all()
        assert table.dtype == np.uint64
        assert space.own_memory_free(1, "hbm") == (1 << 20) - 6 * PAGE
        for card in space.cards:
            assert space.run("farside.sum", farside.read(table), card=card) == numbers.sum()
        with pytest.raises(ValueError, match="read-only"):
            farside.write(table)
        with pytest.raises(ValueError, match="read-only"):
            farside.shared(table)
        with pytest.raises(ValueError, match="read-only"):
            table[0, 0] = 1
        # Whoever gets around NumPy is stopped by the card.
        forced = farside.Lent(table, farside.write(space.array(1)).kind)
        for card in space.cards:
            with pytest.raises(farside.KernelError, match="read"):
                space.run("farside.increment", forced, card=card)
        assert (table == numbers.T).all()
        assert space.copy_on(0, np.empty((0, 4))).shape == (0, 4)
        with pytest.raises(TypeError, match="Python objects"):
            space.copy_on(0, np.array([object()]))


def test_a_served_card_has_several_memories_too(serve_own: Callable[[str], AbstractContextManager[str]]) -> None:
    with serve_own("ddr=8M,hbm=1M") as place, farside.Space(cards=place, address_space=64 << 20) as space:
        x = space.array_on(0, 1000, np.int64, memory="hbm")
        assert [own.free for own in space.own_memories(0)] == [8 << 20, (1 << 20) - 2 * PAGE]
        x[:] = 3
        assert space.run("farside.sum", farside.read(x)) == 3000
        with pytest.raises(farside.FarsideError, match="hbm0 are free, and 8388608 bytes of ddr0"):
            space.array_on(0, 1 << 20, np.uint8, memory="hbm")
