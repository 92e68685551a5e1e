"""The examples in Python, run as a user runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_flights_are_equal_to_pandas_and_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "flights.png"
    found = subprocess.run(
        [sys.executable, EXAMPLES / "flights.py", picture], capture_output=True, text=True, check=True, timeout=300
    )
    assert "128432 of 328521 flights were late" in found.stdout
    assert "1.80 times A\nwith room for the worst case in each of them it would be 2.60 times A" in found.stdout
    assert "equal to pandas in every group" in found.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
