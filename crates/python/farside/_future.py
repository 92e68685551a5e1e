"""Kernels that were launched."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

from farside import _farside


class Future:
    """A kernel that was launched. Dropped, the kernel goes on, and what it was lent lives until it has ended.

    When nothing refers to its space any more either, the kernel is told to stop.
    """

    def __init__(self, job: _farside.Job, space: _farside.Space, kernel: str) -> None:
        self._job = job
        self._space = space
        self.kernel = kernel
        """The kernel's name."""

    def result(self, timeout: float | None = None) -> int:
        """Waits for the end and gives what the kernel returned. May be called again.

        Raises `KernelError` if it failed, TimeoutError if it still runs after `timeout` seconds.
        """
        value = self._job.wait(timeout)
        if value is None:
            raise TimeoutError(f"kernel `{self.kernel}` still runs after {timeout} s")
        return value

    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self._job.done()

    def cancel(self) -> None:
        """Tells it to stop: it fails at its next access to memory."""
        self._job.cancel()

    def __await__(self) -> Generator[Any, None, int]:
        return asyncio.get_running_loop().run_in_executor(None, self.result).__await__()

    def __repr__(self) -> str:
        return f"<farside.Future of kernel `{self.kernel}`, {'ended' if self.done() else 'running'}>"
