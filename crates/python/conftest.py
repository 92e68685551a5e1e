"""What the tests share, those in the documentation too."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

import farside


@pytest.fixture
def space() -> Iterator[farside.Space]:
    with farside.Space(cards=2, card_memory=16 << 20, address_space=256 << 20) as opened:
        yield opened


@pytest.fixture(scope="session")
def own_kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernels in C that allocate in their card's own memory."""
    path = tmp_path_factory.mktemp("library") / "own.so"
    source = Path(__file__).resolve().parents[1] / "farside/tests/c/own.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-I", farside.get_include(), "-o", path, source], check=True)
    return path


@pytest.fixture
def own(own_kernels: Path) -> Iterator[farside.Space]:
    """Two cards with 16 MiB of own memory each."""
    with farside.Space(cards=2, address_space=64 << 20, card_window=16 << 20, kernel_libraries=[own_kernels]) as opened:
        yield opened


@contextmanager
def serving(place: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a card that is served there."""
    command = os.environ.get("FARSIDE_BIN")
    if command is None:
        pytest.fail("FARSIDE_BIN names no farside command: scripts/python/test.sh sets it")
    arguments = ("card", "serve", str(place), *arguments)
    with subprocess.Popen([command, *arguments], stdout=subprocess.DEVNULL, start_new_session=True) as server:
        try:
            deadline = time.monotonic() + 60
            while not (place / "fn0.sock").exists():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            yield server
        finally:
            server.terminate()


@contextmanager
def served(place: Path, kernels: Path, window: str) -> Iterator[str]:
    """The place of a card in a process of its own, with such memories of its own."""
    with serving(place, "--window", window, "--kernels", str(kernels)):
        yield str(place)


@pytest.fixture
def card_process(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The place of a card in a process of its own, and that process."""
    place = tmp_path / "card"
    with serving(place, "--window", "1MiB") as server:
        yield str(place), server


@pytest.fixture
def served_own(own_kernels: Path, tmp_path: Path) -> Iterator[str]:
    """The place of a card with as much own memory in a process of its own."""
    with served(tmp_path / "card", own_kernels, "16MiB") as place:
        yield place


@pytest.fixture
def serve_own(own_kernels: Path, tmp_path: Path) -> Callable[[str], AbstractContextManager[str]]:
    """Serves a card with memories of its own: as `served`."""
    return lambda window: served(tmp_path / "card", own_kernels, window)


@pytest.fixture(autouse=True)
def _the_command_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is where it was installed."""
    command = os.environ.get("FARSIDE_BIN")
    if command is not None:
        monkeypatch.setenv("PATH", os.path.dirname(command), prepend=os.pathsep)


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test writes does not stay beside the code."""
    monkeypatch.chdir(tmp_path)
