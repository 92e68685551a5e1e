"""Placement schemes from libraries in simulations: each run in a process of its own, which may crash or run away.

The process is this interpreter. It gets what to run as a line of JSON, says how far it is and what came out in lines of
JSON, and ends when who started it does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import IO, Any

from farside import _farside

_ERRORS: dict[str, type[Exception]] = {
    "ValueError": ValueError,
    "OSError": OSError,
    "FarsideError": _farside.FarsideError,
}
_SAID_MAX = 2000
"""Bytes of the last words of a process that are passed on."""
LINES = 1 << 18
"""Lines between two looks at whether to stop: some tens of milliseconds."""
# Without the folder that it is in, which `-c` puts first: what lies there is not what this process has.
_CHILD = "import sys; sys.path[:1] == [''] and sys.path.pop(0); from farside._own_scheme import child; child()"


@dataclass(frozen=True)
class Request:
    """A run: what `Program` and `Simulation` take."""

    program: str
    is_trace: bool
    nbytes: int | None
    scheme: str
    machine: str
    set: list[tuple[str, str]]

    def made(self) -> _farside.Program:
        if self.is_trace:
            return _farside.Program.trace(self.program)
        return _farside.Program.workload(self.program, self.nbytes)


class Children:
    """Processes of runs that are under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._ended = False

    def end(self) -> None:
        """Ends them, and those that begin later."""
        with self._lock:
            self._ended = True
            for process in self._running:
                process.kill()

    @contextlib.contextmanager
    def begin(self, errors: IO[bytes]) -> Iterator[subprocess.Popen[str]]:
        """A process whose standard error goes to a file. It is gone at the end."""
        if not sys.executable:
            raise _farside.FarsideError(
                "a scheme from a library runs in a process of its own, and this program does not say where its "
                "interpreter is (sys.executable)"
            )
        # It finds this package where this process found it.
        places = os.pathsep.join(os.path.abspath(place) for place in sys.path)
        environment = {**os.environ, "PYTHONPATH": places}
        with subprocess.Popen(
            [sys.executable, "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            text=True,
        ) as process:
            try:
                with self._lock:
                    self._running.add(process)
                    if self._ended:
                        process.kill()
                yield process
            finally:
                process.kill()
                with self._lock:
                    self._running.discard(process)


def statistics(request: Request, children: Children, tell: Callable[[float], object]) -> Mapping[str, int]:
    """What comes out of a run; `tell` gets the share of it that is done.

    Raises what the run raises, FarsideError for a process that ended otherwise: how, and its last words.
    """
    _farside.check_library(request.scheme, request.machine, request.set)
    with tempfile.TemporaryFile() as errors:
        answer: dict[str, Any] = {}
        with children.begin(errors) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(json.dumps(asdict(request)) + "\n")
                process.stdin.flush()
            except BrokenPipeError:
                # It ended before it began: how is told below. What was not written must not be tried again.
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()
            for line in process.stdout:
                answer = json.loads(line)
                if "progress" not in answer:
                    break  # A process that the library forked may hold the pipe for ever.
                tell(answer["progress"])
            code = process.wait()
        errors.seek(0)
        said = errors.read().decode(errors="replace")
    if "statistics" in answer:
        # What a library prints is for who wrote it.
        sys.stderr.write(said)
        tell(1.0)
        found: Mapping[str, int] = answer["statistics"]
        return found
    if "error" in answer:
        kind, text = answer["error"]
        raise _ERRORS[kind](text)
    raise _farside.FarsideError(_ended(code, said.strip()))


def _ended(code: int, said: str) -> str:
    if code == 0:
        how = "its process ended without a result, as if all were well: a scheme must not call exit"
    elif code < 0:
        how = f"its process ended by {signal.Signals(-code).name}"
    else:
        how = f"its process ended with code {code}"
    return f"{how}; the last that it said: {said[-_SAID_MAX:]}" if said else how


def child() -> None:
    """The process of one run."""
    # What a library prints is no answer.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    request = Request(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def answer(**values: object) -> None:
        answers.write(json.dumps(values) + "\n")

    try:
        simulation = _farside.Simulation.of_library(
            request.made(), request.scheme, request.machine, [(key, value) for key, value in request.set]
        )
        while (ended := simulation.run(LINES)) is None:
            answer(progress=simulation.progress())
        answer(statistics=dict(ended))
    except (ValueError, OSError, _farside.FarsideError) as error:
        kind = next(name for name, kind in _ERRORS.items() if isinstance(error, kind))
        answer(error=(kind, str(error)))
    answers.flush()
    # Its destructors are not asked whether they end.
    os._exit(0)


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)
