"""Reports of spaces, pages of event logs, and papers' experiments."""

from __future__ import annotations

import html
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import farside


def test_a_report_shows_counters_where_no_log_is_kept(space: farside.Space) -> None:
    x = space.copy(np.ones(1000, np.float32), name="x <y>")
    space.run("farside.saxpy", np.float32(1), farside.read(x), farside.write(space.array(1000, np.float32)))
    report = space.report()
    assert report.log is None
    shown = report._repr_html_()
    assert shown.startswith("<pre>")
    assert html.unescape(shown) == f"<pre>{report}</pre>"


def test_a_report_shows_the_page_where_a_log_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "log.parquet"
    with farside.Space(cards=2, events=log) as space:
        x = space.copy(np.ones(5000, np.float32), name="of the page")
        report = space.report()
        # What happened a moment ago is there when it is shown.
        assert "of the page" in report._repr_html_()
        before = log.stat().st_size
        for _ in range(20):
            str(space.report())
        assert log.stat().st_size == before, "counters alone write nothing"
        space.run("farside.saxpy", np.float32(1), farside.read(x), farside.write(space.array(5000, np.float32)))
        shown = space.report()._repr_html_()
        assert shown.startswith("<iframe")
        assert "farside.saxpy" in shown
        assert shown.count('"') == 8, "the page is one attribute"
    assert report.log == log
    # Of a space that is closed, and of two side by side.
    assert "farside.saxpy" in farside.report_page(log)
    assert farside.report_page(log, log).count("of the page") >= 2
    assert report._repr_html_().startswith("<iframe")
    log.unlink()
    assert "There is no page" in report._repr_html_()
    assert str(report) in html.unescape(report._repr_html_())


def flip_a_bit(path: Path, column: int) -> None:
    """In the last page of a column, which is behind its header."""
    there = pq.ParquetFile(path).metadata.row_group(0).column(column)
    at = (there.dictionary_page_offset or there.data_page_offset) + there.total_compressed_size - 1
    whole = bytearray(path.read_bytes())
    whole[at] ^= 1
    path.write_bytes(whole)


def test_a_bit_that_flips_in_a_log_is_seen_by_us_and_by_pyarrow(tmp_path: Path) -> None:
    log = tmp_path / "log.parquet"
    with farside.Space(cards=1, events=log) as space:
        space.copy(np.ones(5000, np.float32), name="x")
    assert "kind" in pq.read_table(log, page_checksum_verification=True).column_names
    flip_a_bit(log, 1)
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(log, page_checksum_verification=True)
    with pytest.raises(ValueError, match=r"log\.parquet.*row group 0.*kind.*checksum"):
        farside.report_page(log)


def test_a_bit_that_flips_in_a_trace_is_seen(tmp_path: Path) -> None:
    trace = tmp_path / "trace.parquet"
    numbers = np.arange(1000)
    farside.write_trace(trace, {"x": 64 * 1000}, {"gpu": numbers % 2, "buffer": 0 * numbers, "offset": 64 * numbers})
    flip_a_bit(trace, 4)
    with pytest.raises(ValueError, match=r"trace\.parquet.*row group 0.*line.*checksum"):
        farside.simulate(trace, "on-touch")


def test_no_page_of_what_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"none\.parquet"):
        farside.report_page(tmp_path / "none.parquet")
    (tmp_path / "text").write_text("a text, no log")
    with pytest.raises(ValueError, match="Parquet"):
        farside.report_page(tmp_path / "text")
    with pytest.raises(farside.FarsideError, match="/nowhere"):
        farside.Space(cards=1, events="/nowhere/log.parquet")


def test_a_log_that_is_full_is_told_of() -> None:
    space = farside.Space(cards=1, events="/dev/full")
    x = space.copy(np.ones(5000, np.float32))
    report = space.report()
    shown = report._repr_html_()
    assert "No space left" in shown
    assert html.escape(str(report)) in shown, "the counters are there nevertheless"
    assert x.sum() == 5000
    space.close()


def test_the_tables_are_what_the_command_writes(tmp_path: Path) -> None:
    found = farside.reproduce("tapasco", out=tmp_path)
    wanted = pyarrow.csv.read_csv(tmp_path / "report.csv")
    assert found.numbers.num_rows == wanted.num_rows > 20
    for column in ("what", "unit", "source"):
        assert found.numbers[column].to_pylist() == wanted[column].to_pylist()
    assert np.allclose(found.numbers["ours"], wanted["ours"])
    for ours, theirs in zip(found.numbers["deviation"].to_pylist(), wanted["deviation"].to_pylist(), strict=True):
        assert (ours is None) == (theirs is None)
        assert ours is None or abs(ours - theirs) < 1e-6
    for name in found.figures:
        assert found.figure(name).num_rows > 0
    assert found.plot("figure-4").axes
    with pytest.raises(ValueError, match="figure-99"):
        found.figure("figure-99")


def test_experiments_of_grit_with_a_scheme_more(tmp_path: Path) -> None:
    found = farside.reproduce("grit", only="figure-29", schemes="duplication", divide=64, cache=tmp_path / "cells")
    assert set(found.figures) == {"figure-29"}
    assert set(found.figure("figure-29")["series"].to_pylist()) == {"first-touch", "GRIT", "duplication"}


def test_what_cannot_be_reproduced_is_refused() -> None:
    with pytest.raises(ValueError, match="there are grit, tapasco"):
        farside.reproduce("girt")
    with pytest.raises(ValueError, match="figure-99"):
        farside.reproduce("grit", only="figure-99")
    with pytest.raises(farside.FarsideError, match="cargo install"):
        farside.reproduce("grit", command="no-such-command")
