"""The figures of a report, drawn by Matplotlib; and simulations side by side.

`farside reproduce` and `farside bench --out` write `report.json`, which has the data of their figures:

    python -m farside.plot farside-grit

draws each of them into the same folder, as PNG and as SVG.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Data: TypeAlias = "Mapping[str, Any]"
"""A figure as it is in `report.json`."""

_EMPTY = "#f0f0f0"
_INK = "#202020"
_SIZE = (9.6, 4.4)
_DPI = 200
_LABELLED = 20
"""Bars of a figure, at most, whose heights are written above them."""
# Distinct for people who do not see all colours (Okabe and Ito).
_COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#828282"]


def draw(report: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None) -> list[Path]:
    """Draws the figures of a report and gives the files.

    `report` is a folder with a `report.json`, or such a file; the drawings go to `folder`, by default beside it.

    Raises OSError for what cannot be read or written, ValueError for what is no report.
    """
    path = Path(report)
    path = path / "report.json" if path.is_dir() else path
    into = path.parent if folder is None else Path(folder)
    into.mkdir(parents=True, exist_ok=True)
    drawn = []
    for data in _figures_of(path):
        figure = of(data)
        for kind in ("png", "svg"):
            file = into / f"{data['name']}.{kind}"
            figure.savefig(file, dpi=_DPI)
            drawn.append(file)
    return drawn


def of(data: Data) -> Figure:
    """Draws a figure of `report.json`.

    Raises ValueError for what is none.
    """
    try:
        (kind, drawing), *others = data["drawing"].items()
        if others or kind not in _DRAWINGS:
            raise ValueError(f"no figure of a report: `{data.get('name')}` is a {kind!r}, which there is not")
        figure, axes = _empty(data["title"])
        _DRAWINGS[kind](axes, drawing)
        _finish(axes, data)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"no figure of a report: {error!r} of {str(data)[:200]}") from None
    return figure


def speedups(runs: pa.Table, baseline: str | None = None) -> Figure:
    """The runs of `simulate` or `sweep` of one machine: for each program how many times as fast as under `baseline`.

    `baseline` is a scheme, by default that of the first run.

    >>> import farside
    >>> from farside import plot
    >>> runs = farside.simulate(["fir", "st"], ["on-touch", "grit"], nbytes=1 << 20)
    >>> plot.speedups(runs).savefig("speedups.png")

    Raises ValueError if a program has several runs under a scheme, or none under `baseline`.
    """
    rows = [row for row in runs.select(["program", "scheme", "time"]).to_pylist() if row["time"] is not None]
    times: dict[tuple[str, str], int] = {}
    for row in rows:
        key = (row["program"], row["scheme"])
        if key in times:
            raise ValueError(f"{row['program']} has several runs under {row['scheme']}; keep those of one machine")
        times[key] = row["time"]
    programs = list(dict.fromkeys(row["program"] for row in rows))
    schemes = list(dict.fromkeys(row["scheme"] for row in rows))
    measure = baseline or (schemes[0] if schemes else "")
    for program in programs:
        if (program, measure) not in times:
            raise ValueError(f"{program} has no run under {measure}; the runs are under {', '.join(schemes)}")

    def over(program: str, scheme: str) -> float | None:
        time = times.get((program, scheme))
        return None if time is None else times[program, measure] / time

    series = [
        {"label": scheme, "values": [over(program, scheme) for program in programs], "paper": []} for scheme in schemes
    ]
    axis: dict[str, Any] = {"log": False, "from": None, "to": None, "ticks": []}
    drawing = {"Bars": {"groups": [Path(program).name for program in programs], "series": series, "baseline": 1.0}}
    y = {**axis, "label": f"times as fast as {measure}"}
    return of({"name": "speedups", "title": "Speedups", "x": {**axis, "label": ""}, "y": y, "drawing": drawing})


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m farside.plot`."""
    parser = argparse.ArgumentParser(prog="python -m farside.plot", description="Draws the figures of a report.")
    parser.add_argument("report", help="a folder with a report.json, or such a file")
    parser.add_argument("--out", metavar="FOLDER", help="where the drawings go; by default beside the report")
    given = parser.parse_args(arguments)
    try:
        drawn = draw(given.report, given.out)
    except (OSError, ValueError, ImportError) as error:
        print(f"farside.plot: {error}", file=sys.stderr)
        return 1
    print(f"{len(drawn)} files in {drawn[0].parent}" if drawn else f"{given.report} has no figures")
    return 0


def _figures_of(path: Path) -> list[Data]:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        figures = report["figures"]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no report of `farside reproduce` or `farside bench --out`: {error!r}") from None
    if not isinstance(figures, list):
        raise ValueError(
            f"{path} is no report of `farside reproduce` or `farside bench --out`: its figures are no list"
        )
    return figures


def _empty(title: str) -> tuple[Figure, Axes]:
    try:
        figures = importlib.import_module("matplotlib.figure")
        svg = importlib.import_module("matplotlib")
    except ImportError:
        raise ImportError("figures need Matplotlib: pip install matplotlib") from None
    # Text stays text.
    svg.rcParams["svg.fonttype"] = "none"
    # Not by pyplot, which would keep every figure and want a screen.
    figure = figures.Figure(figsize=_SIZE, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize="medium", fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color="#e0e0e0")
    return figure, axes


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]


def _bars(axes: Axes, drawing: Data) -> None:
    """Groups of bars, with a paper's values as diamonds on them."""
    groups, series = drawing["groups"], drawing["series"]
    width = 0.78 / max(len(series), 1)
    few = len(groups) * len(series) <= _LABELLED
    marks: list[tuple[float, float]] = []
    for index, one in enumerate(series):
        at = np.arange(len(groups)) - 0.39 + width * (index + 0.5)
        heights = [np.nan if value is None else value for value in one["values"]]
        heights += [np.nan] * (len(groups) - len(heights))
        bars = axes.bar(at, heights, width * 0.94, color=_colour(index), label=one["label"])
        marks += [(at[group], value) for group, value in enumerate(one["paper"]) if value is not None]
        if few:
            labels = ["" if np.isnan(height) else f"{height:.2f}" for height in heights]
            axes.bar_label(bars, labels, fontsize="x-small", padding=1)
    if marks:
        x, y = zip(*marks, strict=True)
        axes.scatter(x, y, marker="D", color=_INK, s=16, zorder=3, label="paper")
    if drawing["baseline"] is not None:
        axes.axhline(drawing["baseline"], color=_INK, linewidth=1)
    axes.set_xticks(range(len(groups)), groups)


def _stacked(axes: Axes, drawing: Data) -> None:
    """Groups of bars that are made of parts; what a bar is stands below it."""
    groups, bars = drawing["groups"], drawing["bars"]
    of_group = [[bar for bar in bars if bar["group"] == group] for group in range(len(groups))]
    fullest = max((len(some) for some in of_group), default=1)
    gap = 0.16 if fullest > 1 or len(groups) <= 20 else 0.0
    width = (1 - gap) / max(fullest, 1)
    placed = [
        (group - 0.5 + gap / 2 + width * (index + 0.5), bar)
        for group, some in enumerate(of_group)
        for index, bar in enumerate(some)
    ]
    at = [place for place, _ in placed]
    below = np.zeros(len(placed))
    for index, part in enumerate(drawing["parts"]):
        heights = np.array([bar["parts"][index] if index < len(bar["parts"]) else 0.0 for _, bar in placed])
        axes.bar(at, heights, width * (0.94 if gap else 1), below, color=_colour(index), label=part)
        below += heights
    labelled = any(bar["label"] for _, bar in placed)
    axes.set_xticks(range(len(groups)), [("\n" if labelled else "") + name for name in groups])
    if labelled:
        # Also below a bar that stands in the middle of its group.
        axes.xaxis.remove_overlapping_locs = False
        axes.set_xticks(at, [bar["label"] for _, bar in placed], minor=True, fontsize="x-small")
    axes.tick_params(axis="x", which="both", length=0)


def _lines(axes: Axes, lines: Sequence[Data]) -> None:
    """Lines with points; a paper's points have the colour of the line before them."""
    index = -1
    for line in lines:
        paper = line["paper"] and index >= 0
        index += not paper
        x, y = zip(*line["points"], strict=True) if line["points"] else ((), ())
        style = {"marker": "D", "linestyle": ""} if line["paper"] else {"marker": "o", "markersize": 4}
        axes.plot(x, y, color=_colour(max(index, 0)), label=line["label"], **style)


def _map(axes: Axes, cells: Data) -> None:
    """A field of cells, row by row from below, each of one class."""
    columns = max(cells["columns"], 1)
    rows = -(-len(cells["cells"]) // columns)
    if rows:
        colours = [_EMPTY, *(_colour(index) for index in range(len(cells["classes"]) - 1))]
        map_of = importlib.import_module("matplotlib.colors").ListedColormap(colours)
        field = np.zeros(rows * columns, np.uint8)
        field[: len(cells["cells"])] = cells["cells"]
        edges = (0, columns, 0, rows)
        axes.imshow(
            field.reshape(rows, columns),
            map_of,
            vmin=-0.5,
            vmax=len(colours) - 0.5,
            origin="lower",
            extent=edges,
            aspect="auto",
            interpolation="nearest",
        )
        for colour, name in zip(colours, cells["classes"], strict=True):
            axes.bar([0], [0], color=colour, label=name)
        axes.set(xlim=(0, columns), ylim=(0, rows))
    axes.grid(False)


_DRAWINGS: dict[str, Callable[[Any, Any], None]] = {"Bars": _bars, "Stacked": _stacked, "Lines": _lines, "Map": _map}


def _finish(axes: Axes, data: Data) -> None:
    for name, axis in (("x", data["x"]), ("y", data["y"])):
        getattr(axes, f"set_{name}label")(axis["label"])
        if axis["log"]:
            _logarithmic(axes, name)
        elif name == "y" and "Map" not in data["drawing"]:
            # What is measured begins at 0.
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        getattr(axes, f"set_{name}lim")(axis["from"], axis["to"])
        if axis["ticks"]:
            values: Iterable[float]
            values, texts = zip(*axis["ticks"], strict=True)
            getattr(axes, f"set_{name}ticks")(values, texts)
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        # What a paper prints comes last.
        order = sorted(range(len(labels)), key=lambda index: labels[index] == "paper")
        handles, labels = [handles[index] for index in order], [labels[index] for index in order]
        axes.figure.legend(
            handles, labels, loc="outside lower center", ncols=min(len(labels), 6), fontsize="small", frameon=False
        )


def _logarithmic(axes: Axes, name: str) -> None:
    """Whole decades, with plain numbers."""
    getattr(axes, f"set_{name}scale")("log")
    least, most = getattr(axes.dataLim, f"interval{name}")
    if 0 < least <= most < np.inf:
        decades = np.floor(np.log10(least)), np.ceil(np.log10(most))
        getattr(axes, f"set_{name}lim")(10.0 ** decades[0], 10.0 ** max(decades[1], decades[0] + 1))
    getattr(axes, f"{name}axis").set_major_formatter("{x:g}")


if __name__ == "__main__":
    sys.exit(main())
