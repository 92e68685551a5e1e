"""What the tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import farside


@pytest.fixture
def space() -> Iterator[farside.Space]:
    with farside.Space(cards=2, card_memory=16 << 20, address_space=256 << 20) as opened:
        yield opened
