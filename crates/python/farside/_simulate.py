"""Programs on a simulated machine, under placement schemes."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from farside import _farside, _own_scheme
from farside._table import arrow

if TYPE_CHECKING:
    import pyarrow as pa

Value: TypeAlias = "str | int | float | bool"
Program: TypeAlias = "str | os.PathLike[str]"
"""The name of a generated workload, or where a trace is."""
Progress: TypeAlias = Callable[[float], object]
"""Gets the share of the work that is done, from 0 to 1."""

_OF_SINGLE_PARTS = ("gpu.", "launch.", "driver.moves.")
"""What statistics begin with whose number depends on the run: no columns of a table."""


def simulate(
    program: Program | Sequence[Program],
    schemes: str | Sequence[str] = ("on-touch", "access-counter", "duplication", "grit", "farside"),
    *,
    machine: str = "grit-table-1",
    set: Mapping[str, Value] | None = None,
    nbytes: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> pa.Table:
    """Runs a program, or several, under placement schemes and gives a row for each run.

    `program` is the name of a generated workload (`workloads`) with `nbytes` bytes of data, by default as many as in
    the GRIT paper, or the path of a trace (`write_trace` writes one). `machine` is a preset (`machines`) with the
    values of `set` replaced: `{"gpu.count": 8}`; `machine_text` prints them all. As many runs at once as there are
    processors, or `threads`. A scheme is a name (`schemes`), or one of your own: the path of a library, as in
    `"./libmine.so:after=2"` (`farside new scheme`), whose runs are processes of their own.

    The columns are those of `farside sweep`: which run it is, its time in picoseconds of simulated time, its counters.

    Raises ValueError for what there is not or cannot be, OSError for a file that cannot be read, FarsideError for a run
    that does not come to its end: also of a library that crashes, does not return, or answers what makes no sense.

    >>> import farside
    >>> runs = farside.simulate("fir", ["on-touch", "grit"], nbytes=1 << 20)
    >>> runs.column("scheme").to_pylist()
    ['on-touch', 'grit']
    """
    programs = [program] if isinstance(program, (str, os.PathLike)) else list(program)
    cells = _cells(
        programs, _listed(schemes), [machine], {key: [value] for key, value in (set or {}).items()}, [nbytes]
    )
    return _table(_run_all(cells, threads, progress, keep_errors=False))


def sweep(
    programs: Program | Sequence[Program],
    schemes: str | Sequence[str],
    *,
    machines: str | Sequence[str] = "grit-table-1",
    set: Mapping[str, Value | Sequence[Value]] | None = None,
    nbytes: int | Sequence[int | None] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> pa.Table:
    """As `simulate`, for every combination of what is given. A run that fails is a row with its `error`.

    >>> import farside
    >>> runs = farside.sweep("fir", "grit", set={"gpu.count": [2, 4]}, nbytes=1 << 20)
    >>> runs.column("gpu.count").to_pylist()
    [2, 4]
    """
    many = [programs] if isinstance(programs, (str, os.PathLike)) else list(programs)
    values = {key: _listed(value) for key, value in (set or {}).items()}
    sizes = list(nbytes) if isinstance(nbytes, Sequence) else [nbytes]
    cells = _cells(many, _listed(schemes), _listed(machines), values, sizes)
    return _table(_run_all(cells, threads, progress, keep_errors=True))


def machine_text(machine: str = "grit-table-1", set: Mapping[str, Value] | None = None) -> str:
    """A machine as TOML: each key with its value, where that is from, and whether it is assumed."""
    return _farside.machine_text(machine, _pairs(set or {}))


def machines() -> list[str]:
    """The machines to start from."""
    return _farside.presets()


def workloads() -> list[str]:
    """The generated workloads."""
    return _farside.workloads()


def schemes() -> dict[str, str]:
    """The placement schemes of simulated machines, and what each does."""
    return dict(_farside.schemes())


@dataclass(frozen=True)
class _Cell:
    """One run."""

    program: Program
    nbytes: int | None
    scheme: str
    machine: str
    set: Mapping[str, Value]

    def __str__(self) -> str:
        changed = "".join(f", {key}={_word(value)}" for key, value in self.set.items())
        return f"{os.fspath(self.program)}, {self.scheme}, {self.machine}{changed}"


@dataclass(frozen=True)
class _Run:
    """A run that has ended: what came out, or why nothing did."""

    cell: _Cell
    statistics: Mapping[str, int]
    error: str | None = None


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]


def _cells(
    programs: Sequence[Program],
    schemes: Sequence[str],
    machines: Sequence[str],
    values: Mapping[str, Sequence[Value]],
    sizes: Sequence[int | None],
) -> list[_Cell]:
    settings = [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]
    every = itertools.product(programs, sizes, settings, machines, schemes)
    return [_Cell(program, size, scheme, machine, setting) for program, size, setting, machine, scheme in every]


def _is_trace(program: Program) -> bool:
    """A name that there is names a workload, whatever files there are; one with a dot or a slash is a path."""
    if not isinstance(program, str):
        return True
    return program not in _farside.workloads() and (os.path.exists(program) or "." in program or os.sep in program)


def _request(cell: _Cell) -> _own_scheme.Request:
    is_trace, program = _is_trace(cell.program), os.fspath(cell.program)
    if is_trace and cell.nbytes is not None:
        raise ValueError(f"{program} is a trace: it has its size, and nbytes={cell.nbytes} is none of it")
    if cell.nbytes is not None and not 0 <= cell.nbytes < 1 << 64:
        raise ValueError(f"nbytes={cell.nbytes}: it goes from 0 to {(1 << 64) - 1}")
    return _own_scheme.Request(program, is_trace, cell.nbytes, cell.scheme, cell.machine, _pairs(cell.set))


class _Programs:
    """Programs by what they are called, each made once however many runs there are."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int | None], _farside.Program] = {}

    def of(self, cell: _Cell) -> _farside.Program:
        key = (os.fspath(cell.program), cell.nbytes)
        with self._lock:
            if key not in self._known:
                self._known[key] = self._made(cell)
            return self._known[key]

    @staticmethod
    def _made(cell: _Cell) -> _farside.Program:
        return _request(cell).made()


class _Shares:
    """The share that is done of all runs, told to whom it interests."""

    def __init__(self, runs: int, progress: Progress | None) -> None:
        self._lock = threading.Lock()
        self._done = [0.0] * runs
        self._progress = progress

    def tell(self, run: int, share: float) -> None:
        if self._progress is not None:
            with self._lock:
                self._done[run] = share
                self._progress(sum(self._done) / len(self._done))


def _run_all(
    cells: Sequence[_Cell], threads: int | None, progress: Progress | None, *, keep_errors: bool
) -> list[_Run]:
    if threads is not None and threads < 1:
        raise ValueError(f"threads={threads}: at least 1")
    programs, shares, stop = _Programs(), _Shares(len(cells), progress), threading.Event()
    children = _own_scheme.Children()

    def run(index: int) -> _Run:
        cell = cells[index]

        def tell(share: float) -> None:
            shares.tell(index, share)

        try:
            if _farside.is_library(cell.scheme):
                return _Run(cell, _own_scheme.statistics(_request(cell), children, tell))
            return _Run(cell, _statistics(programs.of(cell), cell, stop, tell))
        except (ValueError, OSError, _farside.FarsideError) as error:
            if keep_errors:
                shares.tell(index, 1.0)
                return _Run(cell, {}, str(error))
            raise type(error)(f"{cell}: {error}") from None

    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        running = [pool.submit(run, index) for index in range(len(cells))]
        try:
            return [future.result() for future in running]
        except BaseException:
            # Also of Ctrl-C: nobody waits for the others.
            stop.set()
            children.end()
            for future in running:
                future.cancel()
            raise


def _statistics(program: _farside.Program, cell: _Cell, stop: threading.Event, tell: Progress) -> Mapping[str, int]:
    simulation = _farside.Simulation(program, cell.scheme, cell.machine, _pairs(cell.set))
    while not stop.is_set():
        ended = simulation.run(_own_scheme.LINES)
        tell(simulation.progress())
        if ended is not None:
            return dict(ended)
    raise _farside.FarsideError("stopped, because another run failed or the program was interrupted")


def _word(value: Value) -> str:
    """A value as the machine's TOML has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pairs(set: Mapping[str, Value]) -> list[tuple[str, str]]:
    return [(key, _word(value)) for key, value in set.items()]


def _table(runs: Sequence[_Run]) -> pa.Table:
    pa = arrow()
    columns: dict[str, Any] = {
        "program": pa.array([os.fspath(run.cell.program) for run in runs], pa.string()),
        "bytes": pa.array([run.cell.nbytes for run in runs], pa.uint64()),
        "scheme": pa.array([run.cell.scheme for run in runs], pa.string()),
        "preset": pa.array([run.cell.machine for run in runs], pa.string()),
    }
    for key in dict.fromkeys(key for run in runs for key in run.cell.set):
        columns[key] = _values([run.cell.set.get(key) for run in runs])
    columns["error"] = pa.array([run.error for run in runs], pa.string())
    for name in _names(runs):
        columns[name] = pa.array([run.statistics.get(name) for run in runs], pa.uint64())
    return pa.table(columns)


def _values(values: Sequence[Value | None]) -> Any:
    """Numbers if all are, words otherwise."""
    pa = arrow()
    alike = len({type(value) for value in values if value is not None}) == 1
    return pa.array(values if alike else [None if value is None else _word(value) for value in values])


def _names(runs: Sequence[_Run]) -> Iterator[str]:
    of_all = dict.fromkeys(name for run in runs for name in run.statistics)
    return (name for name in of_all if not name.startswith(_OF_SINGLE_PARTS))
