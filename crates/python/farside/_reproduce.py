"""Papers' experiments: what a paper prints beside what comes out, as tables of Arrow."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farside import _farside
from farside._table import arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

_PAPERS = ("grit", "tapasco")
_USAGE = 2
"""The exit code of a command line that cannot be."""


@dataclass(frozen=True)
class Reproduction:
    """What `farside reproduce` writes."""

    title: str
    notes: list[str]
    """What a reader must know about the numbers: paragraphs of Markdown."""
    numbers: pa.Table
    """A row for each number: what it is, its unit, what the paper prints (null: nothing), ours, how far that is from it
    (percentage points for what is in %, else percent), and where the paper says it."""
    figures: Mapping[str, Mapping[str, Any]]
    """The figures by name, as they are in `report.json`."""

    def figure(self, name: str) -> pa.Table:
        """What a figure shows, a row for each bar, part of a bar, point or cell.

        Raises ValueError for a figure that there is not.
        """
        (kind, drawing), *_ = self._figure(name)["drawing"].items()
        return arrow().Table.from_pylist(_ROWS[kind](drawing))

    def plot(self, name: str) -> Figure:
        """Draws a figure, by Matplotlib.

        Raises ValueError for a figure that there is not, ImportError without Matplotlib.
        """
        figure: Figure = importlib.import_module("farside.plot").of(self._figure(name))
        return figure

    def _figure(self, name: str) -> Mapping[str, Any]:
        if name not in self.figures:
            raise ValueError(f"there is no figure `{name}`; there are {', '.join(self.figures) or 'none'}")
        return self.figures[name]


def reproduce(
    paper: str,
    *,
    only: str | Sequence[str] = (),
    schemes: str | Sequence[str] = (),
    divide: int | None = None,
    full: bool = False,
    jobs: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    command: str | os.PathLike[str] = "farside",
) -> Reproduction:
    """Runs the experiments of a paper, "grit" or "tapasco", by the command `farside reproduce`; gives what it writes.

    Of GRIT: `only` some of its experiments, such as "figure-17"; `schemes` beside those of the paper, by name or by the
    path of a library; its footprints divided by `divide`, by default 4, or `full`; so many runs at once as `jobs`; and
    where their results are kept, `cache`. `out`: a folder in which the command's files stay.

    `command` is where the command is; the Python package does not have it (docs/releasing.md says where it comes from).

    Raises ValueError for what the command refuses, FarsideError if it cannot be run, or if a run fails.
    """
    if paper not in _PAPERS:
        raise ValueError(f"there is no paper `{paper}`; there are {', '.join(_PAPERS)}")
    options = [
        *_option("--only", ",".join(_listed(only))),
        *_option("--scheme", ",".join(_listed(schemes))),
        *_option("--divide", divide),
        *(["--full"] if full else []),
        *_option("--jobs", jobs),
        *_option("--cache", None if cache is None else os.fspath(cache)),
    ]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch if out is None else out)
        _run([_found(command), "reproduce", paper, "--quiet", "--out", str(folder), *options])
        return _read(folder / "report.json")


def _listed(given: str | Sequence[str]) -> Sequence[str]:
    return [given] if isinstance(given, str) else given


def _option(name: str, value: object) -> list[str]:
    return [] if value in (None, "") else [name, str(value)]


def _found(command: str | os.PathLike[str]) -> str:
    path = shutil.which(command)
    if path is None:
        raise _farside.FarsideError(
            f"there is no command {os.fspath(command)!r}: install it (`cargo install --path crates/cli --locked`, "
            "or the package farside of a release), or say where it is by command="
        )
    return path


def _run(arguments: Sequence[str]) -> None:
    done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    said = done.stderr.strip().removeprefix("farside: ") or f"{arguments[0]} ended with code {done.returncode}"
    raise ValueError(said) if done.returncode == _USAGE else _farside.FarsideError(said)


def _read(path: Path) -> Reproduction:
    report = json.loads(path.read_text(encoding="utf-8"))
    pa = arrow()
    schema = [("what", pa.string()), ("unit", pa.string()), ("paper", pa.float64()), ("ours", pa.float64())]
    schema += [("deviation", pa.float64()), ("source", pa.string())]
    rows = [{**row, "deviation": _deviation(row)} for row in report["rows"]]
    return Reproduction(
        title=report["title"],
        notes=report["notes"],
        numbers=pa.Table.from_pylist(rows, pa.schema(schema)),
        figures={figure["name"]: figure for figure in report["figures"]},
    )


def _deviation(row: Mapping[str, Any]) -> float | None:
    """As `report.md` has it."""
    paper, ours = row["paper"], row["ours"]
    if paper is None:
        return None
    if row["unit"] == "%":
        return float(ours - paper)
    return 100 * (ours - paper) / paper if paper != 0 else None


def _bars(drawing: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for series in drawing["series"]:
        paper = [*series["paper"], *[None] * len(drawing["groups"])]
        for group, value, printed in zip(drawing["groups"], series["values"], paper, strict=False):
            rows.append({"group": group, "series": series["label"], "ours": value, "paper": printed})
    return rows


def _stacked(drawing: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"group": drawing["groups"][bar["group"]], "bar": bar["label"], "part": part, "ours": value}
        for bar in drawing["bars"]
        for part, value in zip(drawing["parts"], bar["parts"], strict=False)
    ]


def _lines(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"line": line["label"], "x": x, "y": y, "of_the_paper": line["paper"]}
        for line in lines
        for x, y in line["points"]
    ]


def _map(cells: Mapping[str, Any]) -> list[dict[str, Any]]:
    columns, classes = cells["columns"], cells["classes"]
    return [
        {"row": at // columns, "column": at % columns, "class": classes[cell]} for at, cell in enumerate(cells["cells"])
    ]


_ROWS: Mapping[str, Callable[[Any], list[dict[str, Any]]]] = {
    "Bars": _bars,
    "Stacked": _stacked,
    "Lines": _lines,
    "Map": _map,
}
