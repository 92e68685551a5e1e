"""What the package costs: ratios to what does without it, in one run.

make wheel && pip install target/wheels/*.whl && python crates/python/bench.py
"""

from __future__ import annotations

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


def main() -> None:
    ordinary = np.random.default_rng(1).random(ELEMENTS)
    sums(ordinary)
    tables(ordinary)
    simulations()


if __name__ == "__main__":
    main()
