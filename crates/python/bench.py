"""What the package costs: ratios to what does without it, in one run.

make wheel && pip install target/wheels/*.whl && python crates/python/bench.py
"""

from __future__ import annotations

import ctypes
import mmap
import os
import statistics
import subprocess
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

import farside

ELEMENTS = 1 << 24
ROUNDS = 15
LAUNCHES = 2000


def seconds_of(one: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
    """Medians of both, by turns."""

    def seconds(call: Callable[[], object]) -> float:
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin

    pairs = [(seconds(one), seconds(other)) for _ in range(ROUNDS)]
    return statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)


def ratio(one: Callable[[], object], other: Callable[[], object]) -> float:
    """How many times as long `one` takes."""
    ours, theirs = seconds_of(one, other)
    return ours / theirs


def sums(ordinary: np.ndarray) -> None:
    for large in (False, True):
        with farside.Space(cards=1, large_pages=large) as space:
            shared = space.copy(ordinary)
            print(f"sum of 128 MiB on the host, large_pages={large}: {ratio(shared.sum, ordinary.sum):.2f}x")


def tables(ordinary: np.ndarray) -> None:
    """Into fresh memory: against a copy into a file in memory that is as fresh."""
    table = pa.table({"x": ordinary})

    def into_a_file() -> None:
        file = os.memfd_create("bench")
        os.ftruncate(file, ordinary.nbytes)
        with mmap.mmap(file, ordinary.nbytes) as memory:
            os.close(file)
            np.copyto(np.frombuffer(memory, ordinary.dtype), ordinary)

    for large in (False, True):
        with farside.Space(cards=1, large_pages=large) as space:
            print(f"table of 128 MiB, large_pages={large}: {ratio(lambda: space.table(table), into_a_file):.2f}x")


def simulations() -> None:
    """Against the command that FARSIDE_BIN names, both with one processor."""
    command = os.environ.get("FARSIDE_BIN")
    if command is None:
        print("simulation against the command: not measured, FARSIDE_BIN names no farside command")
        return
    arguments = ["--workload", "mm", "--bytes", "8MB", "--scheme", "grit", "--json", "--quiet"]
    inside, by_command = seconds_of(
        lambda: farside.simulate("mm", "grit", nbytes=8 << 20, threads=1),
        lambda: subprocess.run([command, "sim", *arguments], check=True, capture_output=True),
    )
    print(f"simulation, {inside:.3f} s, against the command, {by_command:.3f} s: {inside / by_command:.3f}x")


class Argument(ctypes.Structure):
    """`farside_argument` of `farside-kernel.h`."""

    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("element", ctypes.c_uint32),
        ("word", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
    )


def launches() -> None:
    """A kernel by its name over eight resident words, launched and waited for: against the same call in C, of the
    libfarside in the folder FARSIDE_C_LIBRARY, less what it costs Python to call anything in C."""
    folder = os.environ.get("FARSIDE_C_LIBRARY")
    if folder is None:
        print("launch above the call in C: not measured, FARSIDE_C_LIBRARY names no folder with libfarside_c.so")
        return
    library, space, memory = ctypes.CDLL(f"{folder}/libfarside_c.so"), ctypes.c_void_p(), ctypes.c_void_p()

    def must(status: int) -> None:
        if status:
            library.farside_last_error.restype = ctypes.c_char_p
            raise RuntimeError(library.farside_last_error().decode())

    must(library.farside_open(None, ctypes.byref(space)))
    must(library.farside_malloc(space, ctypes.c_size_t(64), None, ctypes.byref(memory)))
    argument = Argument(1, 8, memory.value or 0, 64)
    passed = (space, b"farside.sum", ctypes.byref(argument), ctypes.c_uint32(1), None, None)

    def in_c() -> None:
        for _ in range(LAUNCHES):
            must(library.farside_call(*passed))

    def nothing() -> None:
        for _ in range(LAUNCHES):
            must(library.farside_status_text(0, *passed[1:]) and 0)

    with farside.Space(cards=2) as ours:
        words = farside.read(ours.array(8, np.uint64))

        def in_python() -> None:
            for _ in range(LAUNCHES):
                ours.run("farside.sum", words)

        python, c = (seconds / LAUNCHES * 1e6 for seconds in seconds_of(in_python, in_c))
        call, _ = (seconds / LAUNCHES * 1e6 for seconds in seconds_of(nothing, nothing))
    must(library.farside_close(space))
    print(f"launch in Python {python:.1f} µs, in C {c - call:.1f} µs: {python - (c - call):.1f} µs above")


def main() -> None:
    ordinary = np.random.default_rng(1).random(ELEMENTS)
    sums(ordinary)
    tables(ordinary)
    launches()
    simulations()


if __name__ == "__main__":
    main()
