"""What happened in a space so far, and pages of event logs."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Callable
from typing import Any

from farside import _farside

_PAGE_HEIGHT = 900
"""Of a page in a notebook, in pixels: the pictures, and the first remedies."""


class Report:
    """What happened in a space so far: `print` it, or end a notebook's cell with it."""

    def __init__(
        self,
        text: str,
        data: str,
        log: os.PathLike[str] | None = None,
        write_so_far: Callable[[], object] = lambda: None,
    ) -> None:
        self._text = text
        self.data: dict[str, Any] = json.loads(data)
        """The same as numbers, as `farside … --json` writes them."""
        self.log = log
        """The event log, if one is kept."""
        self._write_so_far = write_so_far

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        text = f"<pre>{html.escape(self._text)}</pre>"
        if self.log is None:
            return text
        failed: Exception | None = None
        try:
            self._write_so_far()
        except _farside.FarsideError as error:
            # The space is closed, and all is in the file, or its disk is full.
            failed = error
        try:
            page = report_page(self.log)
        except (OSError, ValueError) as error:
            # The counters are there nevertheless.
            return f"<p>There is no page: {html.escape(str(failed or error))}</p>{text}"
        # A page of its own in the notebook's: neither's scripts and styles reach the other.
        frame = f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts" title="farside report" '
        return f'{frame}style="width: 100%; height: {_PAGE_HEIGHT}px; border: 0"></iframe>'


def report_page(log: str | os.PathLike[str], other: str | os.PathLike[str] | None = None) -> str:
    """The page of `farside report` of an event log, or of two side by side: HTML that needs nothing besides a browser.

    Logs are what `Space(events=…)`, FARSIDE_EVENTS or `farside sim --events` have written; of one that is being
    written, what is in it so far.

    Raises OSError for a file that cannot be read, ValueError for what is no log or is damaged.
    """
    return _farside.page([os.fspath(path) for path in (log, other) if path is not None])
