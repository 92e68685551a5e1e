"""What the tests share, those in the documentation too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import farside


@pytest.fixture
def space() -> Iterator[farside.Space]:
    with farside.Space(cards=2, card_memory=16 << 20, address_space=256 << 20) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test writes does not stay beside the code."""
    monkeypatch.chdir(tmp_path)
