"""The examples in Python, run as a user runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
EXAMPLES = REPOSITORY / "examples"


def in_page(page: str) -> str:
    """The example in Python of a page, as it stands there."""
    parts = (REPOSITORY / page).read_text().split("```python\n")
    assert len(parts) == 2, f"{page} has {len(parts) - 1} examples in Python: say which"
    return parts[1].split("```")[0]


def test_the_example_of_the_readme_and_that_of_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARSIDE_EVENTS", "log.parquet")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "crates/python"))

    def said(page: str) -> str:
        program = tmp_path / "program.py"
        program.write_text(in_page(page))
        return subprocess.run([sys.executable, program], capture_output=True, text=True, check=True, timeout=300).stdout

    assert said("README.md").startswith("3e+06 ")
    assert "demand" in said("docs/report.md")


def test_flights_are_equal_to_pandas_and_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "flights.png"
    found = subprocess.run(
        [sys.executable, EXAMPLES / "flights.py", picture], capture_output=True, text=True, check=True, timeout=300
    )
    assert "128432 of 328521 flights were late" in found.stdout
    assert "1.80 times A\nwith room for the worst case in each of them it would be 2.60 times A" in found.stdout
    assert "equal to pandas in every group" in found.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
