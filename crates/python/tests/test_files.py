"""Files as shared memory."""

from __future__ import annotations

import gc
import os
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
from test_processes import run

import farside


def numbers(path: Path, count: int) -> np.ndarray:
    written = np.arange(count, dtype=np.int64)
    written.tofile(path)
    return written


def test_kernels_and_the_program_change_what_is_in_a_file(space: farside.Space, tmp_path: Path) -> None:
    path = tmp_path / "numbers.bin"
    before = numbers(path, 500_001)
    with space.map_file(path, np.int64) as mapped:
        assert mapped.shape == (500_001,)
        assert mapped.dtype == np.int64
        space.run("farside.increment", farside.write(mapped))
        mapped[7] = -1
    after = np.fromfile(path, np.int64)
    before += 1
    before[7] = -1
    assert np.array_equal(after, before)
    # The array goes on, and what it is given is there at the next sync.
    mapped[-1] = 5
    assert np.fromfile(path, np.int64)[-1] == 500_001


def test_a_file_is_larger_than_what_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "numbers.bin"
    before = numbers(path, 8_000_000)
    with farside.Space(cards=1, card_memory=8 << 20) as space:
        mapped = space.map_file(path, np.int64, memory=4 << 20)
        assert space.run("farside.sum", farside.read(mapped.array)) == before.sum()
        space.run("farside.increment", farside.write(mapped.array))
        mapped.sync()
        assert np.array_equal(np.fromfile(path, np.int64), before + 1)


def test_it_is_given_back_when_nothing_refers_to_it(space: farside.Space, tmp_path: Path) -> None:
    path = tmp_path / "numbers.bin"
    numbers(path, 100_000)
    mapped = space.map_file(path, np.int64)
    with pytest.raises(farside.FarsideError, match="locked by whoever has it mapped already"):
        space.map_file(path)
    part = mapped.array[1000:2000]
    future = space.launch("farside.increment", farside.write(part))
    del mapped, part
    gc.collect()
    future.result()
    del future
    gc.collect()
    again = space.map_file(path, np.int64)
    assert again.array[[999, 1000, 1999, 2000]].tolist() == [999, 1001, 2000, 2000]


def test_what_is_no_file_of_values_is_said(space: farside.Space, tmp_path: Path) -> None:
    path = tmp_path / "odd.bin"
    path.write_bytes(b"12345")
    with pytest.raises(ValueError, match="5 bytes, which are no values of 8 bytes"):
        space.map_file(path, np.float64)
    with pytest.raises(TypeError, match="references to Python objects"):
        space.map_file(path, object)
    with pytest.raises(FileNotFoundError):
        space.map_file(tmp_path / "nowhere.bin")
    with pytest.raises(ValueError, match="no regular file"):
        space.map_file(tmp_path)
    with pytest.raises(ValueError, match="4194304 are the least"):
        space.map_file(path, memory=1)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="0 bytes"):
        space.map_file(path)
    numbers(path, 10)
    path.chmod(0o444)
    if os.geteuid() != 0:
        with pytest.raises(farside.FarsideError, match="cannot be opened"):
            space.map_file(path)


def test_what_cannot_be_written_stays_and_can_be_written_later(space: farside.Space, tmp_path: Path) -> None:
    path = tmp_path / "numbers.bin"
    before = numbers(path, 100_000)
    mapped = space.map_file(path, np.int64)
    mapped.array[...] += 1
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    told = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(farside.FarsideError, match="cannot be written at byte"):
            mapped.sync()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, told)
    assert np.array_equal(mapped.array, before + 1)
    mapped.sync()
    assert np.array_equal(np.fromfile(path, np.int64), before + 1)


def test_an_interpreter_that_ends_writes_what_was_synced(tmp_path: Path) -> None:
    path = tmp_path / "numbers.bin"
    numbers(path, 100_000)
    ended = run(f"""
        import numpy as np, farside
        space = farside.Space(cards=1)
        mapped = space.map_file({str(path)!r}, np.int64)
        space.run("farside.increment", farside.write(mapped.array))
        mapped.sync()
    """)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert np.fromfile(path, np.int64)[[0, -1]].tolist() == [1, 100_000]
