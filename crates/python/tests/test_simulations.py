"""Programs on simulated machines, and traces of one's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import farside

SMALL = 1 << 20


def test_the_table_is_that_of_the_command(tmp_path: Path) -> None:
    command = os.environ.get("FARSIDE_BIN")
    if command is None:
        pytest.fail("FARSIDE_BIN names no farside command: scripts/python/test.sh sets it")
    (tmp_path / "grid.toml").write_text(
        '[[grid]]\nworkloads = ["fir", "st"]\nbytes = [1048576]\nschemes = ["on-touch", "grit"]\n'
        'set = { "gpu.count" = [2, 4] }\n'
    )
    out = tmp_path / "runs.csv"
    subprocess.run(
        [command, "sweep", tmp_path / "grid.toml", "--cache", tmp_path / "cache", "--out", out],
        check=True,
        capture_output=True,
    )
    wanted = pa.csv.read_csv(out)
    found = farside.sweep(["fir", "st"], ["on-touch", "grit"], set={"gpu.count": [2, 4]}, nbytes=SMALL)
    assert found.column_names == wanted.column_names
    order = [(name, "ascending") for name in ("program", "scheme", "gpu.count")]
    for name in set(wanted.column_names) - {"error"}:
        assert found.sort_by(order)[name].to_pylist() == wanted.sort_by(order)[name].to_pylist(), name


def test_threads_change_nothing_and_progress_goes_to_its_end() -> None:
    told: list[float] = []
    one = farside.simulate("st", ["on-touch", "grit", "farside"], nbytes=SMALL, threads=1, progress=told.append)
    many = farside.simulate("st", ["on-touch", "grit", "farside"], nbytes=SMALL, threads=3)
    assert one.equals(many)
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_what_is_named_exists() -> None:
    assert "grit-paper" in farside.machines()
    assert {"fir", "mm"} <= set(farside.workloads())
    assert "grit" in farside.schemes()
    assert "count = 8" in farside.machine_text(set={"gpu.count": 8})
    text = farside.machine_text("grit-paper", {"fault.forwarding": True})
    assert "forwarding = true" in text


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"program": "fri"}, ValueError, "fri"),
        ({"program": "missing.parquet", "nbytes": None}, OSError, "missing.parquet"),
        ({"program": "some.parquet"}, ValueError, "is a trace"),
        ({"program": "fir", "schemes": "girt"}, ValueError, "girt"),
        ({"program": "fir", "schemes": "grit:threshold=no"}, ValueError, "threshold"),
        ({"program": "fir", "machine": "cray"}, ValueError, "cray"),
        ({"program": "fir", "set": {"gpu.cuont": 2}}, ValueError, "gpu.cuont"),
        ({"program": "fir", "set": {"gpu.count": 99}}, ValueError, "gpu.count"),
        ({"program": "fir", "nbytes": 1}, ValueError, "1"),
        ({"program": "fir", "nbytes": -1}, ValueError, "nbytes=-1"),
        ({"program": "fir", "nbytes": 1 << 64}, ValueError, "nbytes="),
        ({"program": "fir", "threads": 0}, ValueError, "threads=0"),
    ],
)
def test_what_cannot_be_is_named(arguments: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        farside.simulate(**{"schemes": "grit", "nbytes": SMALL, **arguments})


def test_a_run_that_fails_is_a_row_of_a_sweep() -> None:
    runs = farside.sweep("fir", ["grit", "girt"], set={"gpu.count": [2, 99]}, nbytes=SMALL).to_pylist()
    assert [run["error"] is None for run in runs] == [True, False, False, False]
    assert "girt" in runs[1]["error"]
    assert "99" in runs[2]["error"]
    assert runs[0]["time"] > 0
    assert runs[1]["time"] is None


def test_an_error_stops_the_other_runs() -> None:
    with pytest.raises(ValueError, match="girt"):
        farside.simulate("mm", ["girt", "grit"], nbytes=64 << 20, threads=2)
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]


def test_ctrl_c_ends_all_runs() -> None:
    program = "import farside; print(flush=True); farside.simulate('mm', ['grit', 'on-touch'], nbytes=256 << 20)"
    running = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    running.stdout.readline()
    time.sleep(1)
    running.send_signal(signal.SIGINT)
    try:
        # The whole would take hours.
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
    assert "KeyboardInterrupt" in errors
    assert running.returncode == -signal.SIGINT


def scan(gpus: int, lines: int) -> dict[str, np.ndarray[Any, Any]]:
    number = np.arange(lines)
    return {"gpu": number % gpus, "buffer": np.zeros(lines, int), "offset": 64 * number, "write": number % 2 == 0}


def test_a_trace_is_what_was_given(tmp_path: Path) -> None:
    path = tmp_path / "scan.parquet"
    farside.write_trace(path, {"x": 64 * 1000}, scan(4, 1000))
    run = farside.simulate(path, "on-touch").to_pylist()[0]
    assert (run["total.reads"], run["total.writes"]) == (500, 500)
    assert not list(tmp_path.glob("*.part"))


def test_a_generator_gives_the_trace_of_the_whole(tmp_path: Path) -> None:
    whole = {"unit": np.arange(9000) // 7 % 5, "launch": np.arange(9000) // 4000, **scan(3, 9000)}

    def pieces() -> Iterator[dict[str, np.ndarray[Any, Any]]]:
        for first in range(0, 9000, 1234):
            yield {name: column[first : first + 1234] for name, column in whole.items()}

    farside.write_trace(tmp_path / "a.parquet", {"x": 64 * 9000}, whole)
    farside.write_trace(tmp_path / "b.parquet", {"x": 64 * 9000}, pieces())
    one, other = (farside.simulate(tmp_path / name, "grit") for name in ("a.parquet", "b.parquet"))
    assert one.drop_columns("program").equals(other.drop_columns("program"))


def test_an_access_of_many_bytes_is_of_many_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    two: dict[str, Any] = {"gpu": [0, 1], "buffer": "y", "offset": [0, 63], "nbytes": [65, 2]}
    farside.write_trace(path, {"x": 100, "y": 1 << 20}, two)
    assert farside.simulate(path, "on-touch").column("total.reads").to_pylist() == [4]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"gpu": [0, 16]}, "row 1: `gpu` is 16"),
        ({"gpu": [0, -1]}, "row 1: `gpu` is -1"),
        ({"gpu": [0.5, 1]}, "`gpu` has values of float64"),
        ({"buffer": [0, 2]}, "row 1: buffer 2; there are 2"),
        ({"buffer": "z"}, "no buffer `z`"),
        ({"offset": [0, 97]}, "row 1: 4 bytes from 97 on are not in buffer `x` of 100 bytes"),
        ({"offset": [0, 1 << 62]}, "row 1"),
        ({"nbytes": [0, 1]}, "row 0: `nbytes` is 0"),
        ({"launch": [0, 1 << 16]}, "row 1: `launch`"),
        ({"unit": [0, 64]}, "row 1: `unit`"),
        ({"write": [0, 2]}, "row 1: `write`"),
        ({"offset": [0, 1, 2]}, "one length"),
        ({"ofset": [0, 1]}, "no column `ofset`"),
        ({"offset": np.ma.masked_array([0, 4], [False, True])}, "`offset` has masked values"),
    ],
)
def test_a_trace_that_cannot_be_is_refused_and_leaves_no_file(
    tmp_path: Path, change: dict[str, Any], match: str
) -> None:
    columns = {"gpu": [0, 1], "buffer": 0, "offset": [0, 4], **change}
    with pytest.raises(ValueError, match=match):
        farside.write_trace(
            tmp_path / "t.parquet", {"x": 100, "y": 1}, [{"gpu": [], "buffer": [], "offset": []}, columns]
        )
    assert not list(tmp_path.iterdir())


def test_a_trace_takes_the_place_of_another_only_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    farside.write_trace(path, {"x": 64 * 100}, scan(2, 100))
    before = path.read_bytes()

    def interrupted() -> Iterator[dict[str, np.ndarray[Any, Any]]]:
        yield scan(2, 50)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        farside.write_trace(path, {"x": 64 * 100}, interrupted())
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["t.parquet"]
    for buffers, gpus in [({}, None), ({"x": 0}, None), ({"x": 1}, 17)]:
        with pytest.raises(ValueError, match=r"buffer|gpus"):
            farside.write_trace(path, buffers, scan(1, 1), gpus=gpus)
