"""What happened in a space so far."""

from __future__ import annotations

import html
import json
from typing import Any


class Report:
    """What happened in a space so far: `print` it, or end a notebook's cell with it."""

    def __init__(self, text: str, data: str) -> None:
        self._text = text
        self.data: dict[str, Any] = json.loads(data)
        """The same as numbers, as `farside … --json` writes them."""

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self._text)}</pre>"
