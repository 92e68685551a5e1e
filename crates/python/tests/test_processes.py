"""Fork, the interpreter's end, kernels that need the interpreter, Ctrl-C, kernels in C."""

from __future__ import annotations

import faulthandler
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import farside

REPOSITORY = Path(__file__).resolve().parents[3]


def run(program: str, *, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )


SLOW = """
    import numpy as np, farside
    @farside.kernel(np.int64, [np.float64])
    def spin(rounds, x):
        for _ in range(rounds):
            for i in range(len(x)):
                x[i] = x[i] * 0.5 + 1
    space = farside.Space(cards=1)
    x = space.array(1 << 16)
"""


def test_a_child_of_fork_is_refused_and_the_parent_goes_on(space: farside.Space) -> None:
    array = space.copy(np.arange(1000))
    space.migrate(array, 0)
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (lambda: space.array(1), lambda: space.where(array), space.report, space.close):
            try:
                call()
            except farside.FarsideError as error:
                refused += "made by fork" in str(error)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    assert array.sum() == 999 * 500


def test_a_child_that_touches_an_array_ends(space: farside.Space) -> None:
    array = space.copy(np.arange(1000))
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        array[0] = 1
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGSEGV
    assert array[0] == 0


def test_the_interpreter_ends_while_a_kernel_runs() -> None:
    done = run(SLOW + "    space.launch(spin, 1_000_000, farside.write(x))\n    print('end')")
    assert done.stdout == "end\n"
    assert done.returncode == 0, done.stderr


def test_an_interpreter_that_leaves_everything_to_its_end() -> None:
    done = run(SLOW + "    f = space.launch(spin, 3, farside.write(x))\n    f.result()\n    print(x[-1])")
    assert (done.returncode, done.stdout) == (0, "1.75\n"), done.stderr


# Its kernel holds its card for a while, and needs the interpreter's lock again and again meanwhile. It ends before it
# is given up, a fifth of a second after it was told to stop.
NEEDY = """
    import gc, threading, time
    import numba, numpy as np, farside
    entered, ended = threading.Event(), threading.Event()
    def interpreted():
        entered.set()
        for _ in range(50):
            time.sleep(0.001)
        ended.set()
    @farside.kernel([np.float64])
    def needy(x):
        with numba.objmode():
            interpreted()
        x[0] = 7
    space = farside.Space(cards=1, card_window=1 << 20)
    def on_the_card():
        array = space.array(1 << 16, np.uint64)
        space.run("farside.sum", farside.read(array))
        return array
"""


@pytest.mark.parametrize(
    "freed",
    [
        "x = on_the_card()",
        "x = space.adopt(bytearray(1 << 20)); space.migrate(x.array, 0)",
        "x = space.array_on(0, 1 << 10)",
    ],
)
@pytest.mark.parametrize("thread", ["free()", "t = threading.Thread(target=free); t.start(); t.join()"])
def test_memory_is_freed_while_its_card_needs_the_interpreter(freed: str, thread: str) -> None:
    program = f"""
    {freed}
    def free():
        global x
        x = None
        gc.collect()
    y = space.array(1 << 10)
    future = space.launch(needy, farside.write(y))
    entered.wait()
    {thread}
    future.result()
    print(y[0])
    space.close()
    """
    done = run(NEEDY + program, timeout=60)
    assert (done.returncode, done.stdout) == (0, "7.0\n"), done.stderr


def test_the_interpreter_goes_on_while_a_card_that_stands_still_has_what_is_freed(
    card_process: tuple[str, subprocess.Popen[bytes]],
) -> None:
    place, server = card_process
    with farside.Space(place) as space:
        held = [space.array_on(0, 1 << 10)]
        freeing = threading.Thread(target=held.clear)
        # With the processes that serve its functions.
        os.killpg(server.pid, signal.SIGSTOP)
        try:
            freeing.start()
            longest = 0.0
            for _ in range(50):
                begin = time.monotonic()
                time.sleep(0.005)
                longest = max(longest, time.monotonic() - begin)
            waits = freeing.is_alive()
        finally:
            os.killpg(server.pid, signal.SIGCONT)
        freeing.join(60)
        assert waits, "the card lets go while it stands still: the test shows nothing"
        assert longest < 1


def test_a_space_that_is_dropped_while_its_card_needs_the_interpreter() -> None:
    program = """
    y = space.array(1 << 10)
    future = space.launch(needy, farside.write(y))
    entered.wait()
    del space, future
    # Its kernel was stopped, which ended first.
    print(ended.is_set(), y[0])
    """
    done = run(NEEDY + program, timeout=60)
    assert (done.returncode, done.stdout) == (0, "True 7.0\n"), done.stderr


def test_the_last_array_of_a_card_that_needs_the_interpreter() -> None:
    program = """
    y = space.array(1 << 10)
    future = space.launch(needy, farside.write(y))
    entered.wait()
    del space, future, y
    over = ended.is_set()
    print(over)
    """
    done = run(NEEDY + program, timeout=60)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_the_interpreter_ends_while_a_card_needs_it_and_holds_memory() -> None:
    program = """
    x, y = on_the_card(), space.array(1 << 10)
    future = space.launch(needy, farside.write(y))
    entered.wait()
    print("end")
    """
    done = run(NEEDY + program, timeout=60)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_ctrl_c_while_one_waits() -> None:
    program = (
        SLOW
        + """
    import os, signal, threading
    future = space.launch(spin, 1_000_000, farside.write(x))
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        future.result()
    except KeyboardInterrupt:
        print("stopped")
    """
    )
    done = run(program)
    assert done.stdout == "stopped\n", done.stderr
    assert done.returncode == 0, done.stderr


def compiled(source: Path, into: Path) -> Path:
    """A shared library of a source in C, with the project's headers."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed, as for building Farside"
    include = f"-I{REPOSITORY / 'include'}"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", include, "-o", into, source], check=True)
    return into


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("library") / "kernels.so"
    return compiled(REPOSITORY / "examples/c-kernels/kernels.c", into)


def test_a_placement_scheme_of_a_library_in_c(tmp_path: Path) -> None:
    template = REPOSITORY / "crates/cli/templates/scheme/scheme.c"
    source = tmp_path / "scheme.c"
    source.write_text(template.read_text().replace("__name__", "mine"))
    scheme = compiled(source, tmp_path / "libmine.so")
    with farside.Space(cards=2, placement=f"{scheme}:after=2") as space:
        x = space.copy(np.arange(5000.0))
        for card in (0, 1, 0, 1):
            space.run("farside.sum", farside.read(x), card=card)
        assert "mine" in space.why(x)
    with pytest.raises(ValueError, match="after"):
        farside.Space(placement=f"{scheme}:after=0")
    with pytest.raises(ValueError, match=r"nowhere\.so"):
        farside.Space(placement="/nowhere.so")


def test_kernels_of_a_library_in_c(library: Path) -> None:
    with farside.Space(cards=2, kernel_libraries=[library]) as space:
        assert "example.add" in space.kernels
        x, y, z = (space.array(5000, np.float32) for _ in range(3))
        x.fill(40)
        y.fill(2)
        assert space.run("example.add", farside.read(x), farside.read(y), farside.write(z), card=1) == 5000
        assert (z == 42).all()
        with pytest.raises(farside.KernelError, match=r"takes .read f32 x"):
            space.run("example.add", farside.read(x))


LOGGED = """
    import multiprocessing, os, sys
    import numpy as np, farside
    def child():
        with farside.Space(cards=1) as mine:
            mine.run("farside.sum", farside.read(mine.array(512, np.uint64)))
    def forked():
        if (pid := os.fork()) == 0:
            child()
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        return pid
    def of_multiprocessing(method):
        process = multiprocessing.get_context(method).Process(target=child)
        process.start()
        process.join()
        assert process.exitcode == 0
        return process.pid
    if __name__ == "__main__":
        space = farside.Space(cards=1)
        x = space.array(512, np.uint64)
        space.run("farside.sum", farside.read(x))
        print(forked() if sys.argv[1] == "os.fork" else of_multiprocessing(sys.argv[1]))
        space.run("farside.sum", farside.read(x))
        del x
        space.close()
"""


@pytest.mark.parametrize("way", ["os.fork", "fork", "spawn"])
def test_each_process_has_an_event_log_of_its_own(tmp_path: Path, way: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(LOGGED))
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "FARSIDE_EVENTS": str(tmp_path / "log.parquet")}
    done = subprocess.run(
        [sys.executable, program, way], capture_output=True, text=True, timeout=120, env=os.environ | environment
    )
    assert done.returncode == 0, done.stderr
    child = tmp_path / f"log.{int(done.stdout)}.parquet"
    assert sorted(tmp_path.glob("*.parquet")) == sorted([tmp_path / "log.parquet", child])
    for log, kernels in [(tmp_path / "log.parquet", 2), (child, 1)]:
        kinds = pq.read_table(log)["kind"].to_pylist()
        assert kinds.count("launch") == kinds.count("end") == kernels


def test_two_spaces_do_not_write_one_event_log(tmp_path: Path) -> None:
    log = tmp_path / "log.parquet"
    with farside.Space(cards=1, events=log), pytest.raises(farside.FarsideError, match="another log is being written"):
        farside.Space(cards=1, events=log)
