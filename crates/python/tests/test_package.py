"""What the package says of itself."""

from __future__ import annotations

import re
from pathlib import Path

import farside


def test_it_has_the_version_of_the_project() -> None:
    manifest = (Path(__file__).parents[3] / "Cargo.toml").read_text()
    assert re.findall(r'^\[workspace\.package\]\nversion = "(.*)"$', manifest, re.MULTILINE) == [farside.__version__]
