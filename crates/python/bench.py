"""What arrays in shared memory cost the host: ratios to ordinary arrays, in one run.

make wheel && pip install target/wheels/*.whl && python crates/python/bench.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

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


def main() -> None:
    ordinary = np.random.default_rng(1).random(ELEMENTS)
    for large in (False, True):
        with farside.Space(cards=1, large_pages=large) as space:
            shared = space.copy(ordinary)
            print(f"sum of 128 MiB on the host, large_pages={large}: {ratio(shared.sum, ordinary.sum):.2f}x")


if __name__ == "__main__":
    main()
