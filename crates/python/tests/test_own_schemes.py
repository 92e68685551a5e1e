"""Placement schemes from libraries in simulations: they crash and run away in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import farside

SMALL = 1 << 20
INCLUDE = Path(__file__).resolve().parents[3] / "include"
Library = Callable[[str, str], str]


@pytest.fixture
def library(tmp_path: Path) -> Library:
    """Compiles a scheme whose `on_fault` has this body."""

    def made(name: str, body: str) -> str:
        source, path = tmp_path / f"{name}.c", tmp_path / f"lib{name}.so"
        source.write_text(
            "#include <farside-scheme.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
            "static void on_fault(void *at, const farside_fault *fault, farside_decision *answer)\n"
            f"{{ (void)at; (void)fault; (void)answer; {body} }}\n"
            "static const farside_scheme scheme = { .abi_version = FARSIDE_SCHEME_ABI,\n"
            f'.size = sizeof(farside_scheme), .name = "{name}", .about = "a test", .on_fault = on_fault }};\n'
            "FARSIDE_EXPORT_SCHEME(scheme)\n"
        )
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-I", INCLUDE, "-o", path, source], check=True)
        return str(path)

    return made


def test_a_template_is_simulated_as_by_the_command(tmp_path: Path) -> None:
    command = os.environ.get("FARSIDE_BIN")
    if command is None:
        pytest.fail("FARSIDE_BIN names no farside command: scripts/python/test.sh sets it")
    subprocess.run([command, "new", "scheme", "mine", "--at", tmp_path], check=True, capture_output=True)
    subprocess.run(["make", "-s", "-C", tmp_path / "mine"], check=True)
    scheme = str(tmp_path / "mine" / "libmine.so")
    arguments = ["--workload", "st", "--bytes", str(SMALL), "--scheme", f"on-touch,{scheme}", "--json", "--quiet"]
    told = subprocess.run([command, "sim", *arguments], check=True, capture_output=True, text=True)
    shares: list[float] = []
    runs = farside.simulate("st", ["on-touch", scheme], nbytes=SMALL, progress=shares.append)
    assert runs["scheme"].to_pylist() == ["on-touch", scheme]
    assert shares[-1] == 1.0
    for picoseconds in runs["time"].to_pylist():
        assert str(picoseconds) in told.stdout
    with_parameter = farside.simulate("st", f"{scheme}:after=2", nbytes=SMALL)
    assert with_parameter["error"].to_pylist() == [None]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('fputs("at the end", stderr); abort();', "SIGABRT; the last that it said: at the end"),
        ("*(volatile int *)8 = 1;", "SIGSEGV"),
        ("exit(0);", "a scheme must not call exit"),
        ("for (;;) ;", "on_fault"),
        ("answer->action = 99;", "99"),
    ],
)
def test_one_that_is_wrong_is_named_and_the_others_go_on(
    library: Library, monkeypatch: pytest.MonkeyPatch, body: str, why: str
) -> None:
    monkeypatch.setenv("FARSIDE_SCHEME_SECONDS", "1")
    runs = farside.sweep("st", [library("wrong", body), "on-touch"], nbytes=SMALL)
    mine, other = runs["error"].to_pylist()
    assert why in mine
    assert other is None


def test_a_simulation_under_one_that_is_wrong_says_which(library: Library) -> None:
    wrong = library("wrong", "abort();")
    with pytest.raises(farside.FarsideError, match=r"libwrong\.so"):
        farside.simulate("st", [wrong, "on-touch"], nbytes=SMALL)


def test_what_it_prints_is_no_result(library: Library, capfd: pytest.CaptureFixture[str]) -> None:
    talks = library("talks", 'puts("a line"); fflush(stdout);')
    assert farside.simulate("st", talks, nbytes=SMALL)["error"].to_pylist() == [None]
    assert "a line" in capfd.readouterr().err


def test_nobody_waits_for_what_it_forks(library: Library) -> None:
    forks = library("forks", "static int faults; if (faults++ == 0 && fork() == 0) { sleep(30); _exit(0); }")
    begun = time.monotonic()
    assert farside.simulate("st", forks, nbytes=SMALL)["error"].to_pylist() == [None]
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("scheme", ["./none.so", "{here}/text.so", "{wrong}:girth=2"])
def test_one_that_cannot_be_is_refused(library: Library, tmp_path: Path, scheme: str) -> None:
    (tmp_path / "text.so").write_text("a text")
    named = scheme.format(here=tmp_path, wrong=library("wrong", ""))
    with pytest.raises(ValueError, match=r"\.so"):
        farside.simulate("st", named, nbytes=SMALL)


def test_its_processes_end_with_the_program(library: Library, tmp_path: Path) -> None:
    slow = library("slow", f'FILE *f = fopen("{tmp_path}/began", "w"); fclose(f); for (;;) ;')
    program = f"import farside; farside.simulate('st', {slow!r}, nbytes={SMALL})"
    environment = {**os.environ, "FARSIDE_SCHEME_SECONDS": "600"}
    for how in (signal.SIGKILL, signal.SIGINT):
        (tmp_path / "began").unlink(missing_ok=True)
        with subprocess.Popen([sys.executable, "-c", program], env=environment, stderr=subprocess.DEVNULL) as process:
            wait_for(lambda: (tmp_path / "began").exists())
            process.send_signal(how)
        wait_for(lambda: not running(slow))


def running(library: str) -> bool:
    """Whether a process has the library."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if library in maps.read_text():
                return True
        except (OSError, UnicodeDecodeError):
            continue
    return False


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)
