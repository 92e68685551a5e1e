"""mutants.py [PART OF A NAME...]: whether the checks of rtl/ find the mistakes of rtl/mutants.py.

All of them, or those whose names have one of the parts in them; as many at a time as there are processors.
Prints a line for each, in their order: "found" or "MISSED". Exit codes: 0 all were found, 1 some were
not, or a check did not run.
"""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RTL = ROOT / "rtl"
OUT = Path(os.environ["RTL_TARGET"]) / "mutants"
LIMIT_S = 600

sys.path.insert(0, str(RTL))
from mutants import MUTANTS, Mutant  # noqa: E402


def run(command: list, log: Path, **variables: str) -> int:
    """The exit code of a command, whose output goes to a file."""
    with log.open("w") as file:
        environment = os.environ | variables
        done = subprocess.run(
            [str(word) for word in command], stdout=file, stderr=file, cwd=ROOT, env=environment, timeout=LIMIT_S
        )
    return done.returncode


def copy(mutant: Mutant, folder: Path) -> Path:
    """A copy of the entities with the mistake."""
    sources = folder / "sources"
    shutil.rmtree(folder, ignore_errors=True)
    sources.mkdir(parents=True)
    for file in RTL.glob("*.vhd"):
        shutil.copy(file, sources)
    path = sources / mutant.file
    text = path.read_text()
    if text.count(mutant.right) != 1:
        sys.exit(f"{mutant.name}: {mutant.file} has {text.count(mutant.right)} of these: {mutant.right}")
    path.write_text(text.replace(mutant.right, mutant.wrong))
    return sources


def is_found(mutant: Mutant, folder: Path) -> bool:
    """Whether the check fails for the copy, and because of what it found."""
    sources = copy(mutant, folder)
    log = folder / "log"
    check, _, what = mutant.found_by.partition(":")
    if check == "proof":
        # 1: a property does not hold; 2: it was not proved at all.
        return run([ROOT / "scripts/rtl/prove.sh", sources, folder / "proof", what], log) == 1
    if check == "bench":
        # Of what these tests are made of.
        command = [sys.executable, RTL / "test/run.py", "--sources", sources, "--output-path", folder / "vunit"]
        code = run([*command, "--minimal", "--no-color", what], log)
        # A copy that cannot be compiled fails no test, and a bench that only ran out of time has checked nothing.
        said = log.read_text()
        has_failed = re.search(r"^fail \(P=", said, re.MULTILINE) is not None
        return code == 1 and has_failed and "Test runner timeout" not in said
    # All netlists, or that which is named.
    netlists = folder / "netlists"
    if run([ROOT / "scripts/rtl/netlists.sh", sources, netlists, *filter(None, [what])], log) != 0:
        return False
    variables = {"FARSIDE_RTL_CYCLES": "100000"} | ({"FARSIDE_RTL_NETLIST": what} if what else {})
    code = run([ROOT / "scripts/rtl/lockstep.sh", netlists], log, **variables)
    # It has met a difference; that a netlist could not be loaded (rig_rtl/netlist.rs) says nothing.
    said = log.read_text()
    return code != 0 and "panicked at" in said and "netlist.rs" not in said


def main() -> None:
    parts = sys.argv[1:]
    chosen = [
        (mutant, OUT / str(number))
        for number, mutant in enumerate(MUTANTS)
        if not parts or any(part in mutant.name for part in parts)
    ]
    missed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for (mutant, _), found in zip(chosen, pool.map(lambda one: is_found(*one), chosen), strict=True):
            print(f"{'found ' if found else 'MISSED'}  {mutant.name} ({mutant.found_by})", flush=True)
            missed += not found
    sys.exit(1 if missed else 0)


main()
