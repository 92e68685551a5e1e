"""Draws the figures of the thesis's chapter 6 from our points, with those of the thesis's own VHDL.

``draw.py POINTS THESIS OUT``: both files are CSV, with a point a line (``crates/card/tests/rig_rtl/chapter6.rs``
writes ours). OUT gets ``points.parquet``, which has both, and ``figure-6-N.svg`` and ``.png``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as parquet
from matplotlib.axes import Axes

COLOURS = {1: "#0072b2", 4: "#009e73", 16: "#d55e00", 64: "#cc79a7"}
DEPTH_COLOURS = {"depth 1": "#0072b2", "depth 64": "#d55e00"}
MEMORIES = {"ideal": "a read each cycle", "quarter": "a read in four cycles"}
AXES = {
    "6.2": "translations held",
    "6.3": "bytes of a page",
    "6.4": "walks under way",
}
TITLES = {
    "6.2": "Random reads against translations held; 32 pages of 64 MiB, one walk at a time",
    "6.3": "Linear reads against the size of a page; one translation, requests of 16 beats",
    "6.4": "Random reads against walks under way; one translation",
}


def read(path: Path, source: str) -> pa.Table:
    """The points of a file, each with where it comes from."""
    types = {"figure": pa.string(), "x": pa.int64(), "beats": pa.int64(), "translated": pa.float64()}
    table = csv.read_csv(path, convert_options=csv.ConvertOptions(column_types=types))
    return table.append_column("source", pa.array([source] * table.num_rows))


def rows_of(table: pa.Table, **wanted: str | int) -> list[tuple[int, float]]:
    """x and throughput of the points with these columns, by x."""
    for column, value in wanted.items():
        table = table.filter(pc.equal(table[column], pa.scalar(value, table[column].type)))
    return sorted(zip(table["x"].to_pylist(), table["translated"].to_pylist(), strict=True))


def draw_line(axes: Axes, table: pa.Table, colour: str, label: str, **wanted: str | int) -> None:
    """Our line, and the thesis's points in the same colour."""
    ours = rows_of(table, source="ours", **wanted)
    # Smaller than those of the line before, so that lines which lie on each other are all seen.
    size = 9 - 2 * sum(line.get_linestyle() == "-" for line in axes.lines)
    axes.plot(*zip(*ours, strict=True), "o-", color=colour, markersize=size, label=label)
    if theirs := rows_of(table, source="thesis", **wanted):
        axes.plot(*zip(*theirs, strict=True), "D--", color=colour, fillstyle="none", linewidth=0.8)


def draw_panel(axes: Axes, table: pa.Table, figure: str, series: str, memory: str) -> None:
    """One memory and, except in Figure 6.3, one series with a line for each size of a request."""
    wanted: dict[str, str | int] = {"figure": figure, "interconnect": memory}
    if figure == "6.3":
        for depth, colour in DEPTH_COLOURS.items():
            draw_line(axes, table, colour, depth, series=depth, **wanted)
    else:
        for beats, colour in COLOURS.items():
            label = "1 beat" if beats == 1 else f"{beats} beats"
            draw_line(axes, table, colour, label, series=series, beats=beats, **wanted)
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, 1.05)
    axes.set_xlabel(AXES[figure])
    axes.grid(alpha=0.3)


def draw(table: pa.Table, figure: str, out: Path) -> None:
    """A figure: a column for each memory, a row for each series."""
    chosen = table.filter(pc.equal(table["figure"], figure))
    series = [""] if figure == "6.3" else sorted(set(chosen["series"].to_pylist()), reverse=True)
    sheet, panels = plt.subplots(
        len(series),
        len(MEMORIES),
        figsize=(10, 0.8 + 3.4 * len(series)),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for row, name in zip(panels, series, strict=True):
        for axes, (memory, words) in zip(row, MEMORIES.items(), strict=True):
            draw_panel(axes, chosen, figure, name, memory)
            axes.set_title(f"{name}, {words}" if figure == "6.4" else words, fontsize=10)
        row[0].set_ylabel("beats a cycle")
    panels[0][0].plot([], [], "D--", color="gray", fillstyle="none", label="thesis's VHDL")
    sheet.suptitle(f"{TITLES[figure]} (Figure {figure})", fontsize=11)
    lines, labels = panels[0][0].get_legend_handles_labels()
    sheet.legend(lines, labels, loc="outside lower center", ncols=len(labels), fontsize=9)
    for ending in ("svg", "png"):
        # Nothing of the moment in it, so that the same points give the same file.
        metadata = {"Date": None} if ending == "svg" else {}
        sheet.savefig(out / f"figure-{figure.replace('.', '-')}.{ending}", metadata=metadata)
    plt.close(sheet)


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    points, thesis, out = map(Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    plt.rcParams["svg.hashsalt"] = "farside"
    # Letters as letters, not as outlines.
    plt.rcParams["svg.fonttype"] = "none"
    table = pa.concat_tables([read(points, "ours"), read(thesis, "thesis")], promote_options="default")
    parquet.write_table(table, out / "points.parquet")
    for figure in TITLES:
        draw(table, figure, out)


if __name__ == "__main__":
    main()
