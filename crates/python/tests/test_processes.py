"""Fork, the interpreter's end, Ctrl-C, kernels in C."""

from __future__ import annotations

import faulthandler
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
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
