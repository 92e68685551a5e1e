"""Figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import farside
from farside import plot

AXIS: dict[str, Any] = {"label": "", "log": False, "from": None, "to": None, "ticks": []}
DRAWINGS: dict[str, Any] = {
    "Bars": {
        "groups": ["BFS", "mean"],
        "series": [
            {"label": "on-touch", "values": [1.0, 1.0], "paper": []},
            {"label": "GRIT", "values": [1.5, None], "paper": [None, 1.6]},
        ],
        "baseline": 1.0,
    },
    "Stacked": {
        "groups": ["BFS", "BS"],
        "parts": ["local", "host"],
        "bars": [{"group": 0, "label": "OT", "parts": [0.5, 0.25]}, {"group": 1, "label": "D", "parts": [1.0]}],
    },
    "Lines": [
        {"label": "host to card", "points": [[4096, 0.4], [65536, 6]], "paper": False},
        {"label": "host to card, paper", "points": [[4096, 0.5]], "paper": True},
    ],
    "Map": {"columns": 3, "classes": ["not accessed", "private", "shared"], "cells": [0, 1, 2, 2, 1]},
}
EMPTY: dict[str, Any] = {
    "Bars": {"groups": [], "series": [], "baseline": None},
    "Stacked": {"groups": [], "parts": [], "bars": []},
    "Lines": [],
    "Map": {"columns": 0, "classes": [], "cells": []},
}


def figure(kind: str, drawing: Any, **y: Any) -> dict[str, Any]:
    y_axis = {**AXIS, "label": "performance", **y}
    return {"name": kind, "title": f"All {kind}", "note": None, "x": AXIS, "y": y_axis, "drawing": {kind: drawing}}


@pytest.mark.parametrize("kind", DRAWINGS)
def test_every_kind_is_drawn_with_its_words(tmp_path: Path, kind: str) -> None:
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"figures": [figure(kind, DRAWINGS[kind])]}))
    png, svg = plot.draw(tmp_path, tmp_path / "drawn")
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text()
    words = {
        "Bars": ["BFS", "GRIT", "paper", "1.50"],
        "Stacked": ["BS", "host", "OT"],
        "Lines": ["host to card, paper"],
        "Map": ["not accessed", "shared"],
    }
    for word in [f"All {kind}", "performance", *words[kind]]:
        assert f">{word}<" in text, word
    plot.of(figure(kind, EMPTY[kind])).savefig(tmp_path / "empty.png")
    plot.of(figure(kind, EMPTY[kind], log=True)).savefig(tmp_path / "empty.png")


def test_heights_are_the_values_and_parts_stand_on_each_other() -> None:
    axes: Any
    (axes,) = plot.of(figure("Bars", DRAWINGS["Bars"])).axes
    heights = [patch.get_height() for patch in axes.patches]
    assert heights[:3] == [1.0, 1.0, 1.5]
    (axes,) = plot.of(figure("Stacked", DRAWINGS["Stacked"])).axes
    bars = [(patch.get_y(), patch.get_height()) for patch in axes.patches]
    assert bars == [(0, 0.5), (0, 1.0), (0.5, 0.25), (1.0, 0.0)]


def test_ends_ticks_and_decades() -> None:
    bytes_axis = {
        "label": "bytes",
        "log": True,
        "from": 4096.0,
        "to": 1e6,
        "ticks": [[4096.0, "4 KB"], [65536.0, "64 KB"]],
    }
    axes: Any
    (axes,) = plot.of({**figure("Lines", DRAWINGS["Lines"], log=True), "x": bytes_axis}).axes
    assert axes.get_xlim() == (4096.0, 1e6)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["4 KB", "64 KB"]
    assert axes.get_ylim() == (0.1, 10.0)


def test_the_figures_of_a_reproduction_are_drawn() -> None:
    command = os.environ.get("FARSIDE_BIN")
    if command is None:
        pytest.fail("FARSIDE_BIN names no farside command: scripts/python/test.sh sets it")
    subprocess.run([command, "reproduce", "tapasco", "--quiet", "--out", "out"], check=True, capture_output=True)
    assert plot.main(["out"]) == 0
    names = [figure["name"] for figure in json.loads(Path("out/report.json").read_text())["figures"]]
    assert len(names) >= 8
    assert all(Path(f"out/{name}.{kind}").stat().st_size for name in names for kind in ("png", "svg"))
    # What the report shows is there.
    shown = [
        line.split("](")[1].rstrip(")") for line in Path("out/report.md").read_text().splitlines() if line[:2] == "!["
    ]
    assert sorted(shown) == sorted(f"{name}.png" for name in names)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"figures": 7}', '{"figures": [{}]}', '{"figures": [{"drawing": {"Pie": 1}}]}', "\xff"]
)
def test_what_is_no_report_is_named(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match="report"):
        plot.draw(path)
    assert plot.main([str(path)]) == 1
    assert plot.main([str(tmp_path / "missing")]) == 1
    assert "missing" in capsys.readouterr().err


def test_speedups_are_to_the_baseline() -> None:
    runs = farside.simulate(["fir", "st"], ["on-touch", "grit"], nbytes=1 << 20)
    times = runs["time"].to_pylist()
    axes: Any
    (axes,) = plot.speedups(runs).axes
    heights = [patch.get_height() for patch in axes.patches]
    assert heights == [1, 1, times[0] / times[1], times[2] / times[3]]
    (axes,) = plot.speedups(runs, "grit").axes
    assert axes.patches[0].get_height() == times[1] / times[0]
    with pytest.raises(ValueError, match="fir has no run under gps"):
        plot.speedups(runs, "gps")
    with pytest.raises(ValueError, match="fir has several runs under on-touch"):
        plot.speedups(farside.sweep("fir", "on-touch", set={"gpu.count": [2, 4]}, nbytes=1 << 20))


def test_without_matplotlib_it_says_what_is_missing() -> None:
    program = """
import sys
sys.modules["matplotlib"] = None
from farside import plot
try:
    plot.of({"title": "T", "drawing": {"Lines": []}})
except ImportError as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "figures need Matplotlib: pip install matplotlib\n"
