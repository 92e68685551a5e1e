"""What the package costs: ratios to what does without it, in one run.

make wheel && pip install target/wheels/*.whl && python crates/python/bench.py
"""

from __future__ import annotations

import mmap
import os
import statistics
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

import farside

ELEMENTS = 1 << 24
ROUNDS = 15


def ratio(one: Callable[[], object], other: Callable[[], object]) -> float:
    """Median of how many times as long `one` takes, by turns."""

    def seconds(call: Callable[[], object]) -> float:
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin

    return statistics.median(seconds(one) / seconds(other) for _ in range(ROUNDS))


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


def main() -> None:
    ordinary = np.random.default_rng(1).random(ELEMENTS)
    sums(ordinary)
    tables(ordinary)


if __name__ == "__main__":
    main()
