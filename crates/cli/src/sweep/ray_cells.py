"""Carries out cells of a sweep as tasks of a Ray cluster.

Reads {"address", "binary": [path, hash], "cells": [{"index", "arguments", "files"}]} from standard
input and prints {"index", "code", "stdout", "stderr"} for each cell as soon as it is over.
"""

import json
import os
import subprocess
import sys
import tempfile

try:
    import ray
except ImportError:
    sys.exit(
        f"farside: {sys.executable} has no package `ray`; "
        "install it (pip install ray) or name another interpreter with --python"
    )

MESSAGE_BYTES_MAX = 1 << 16


def place(folder, name, content, mode):
    """Puts a file into the folder unless it is there, whole or not at all."""
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        os.rename(file.name, path)
    return path


# A cell is one thread, and a task that is lost with its machine is run again elsewhere.
@ray.remote(num_cpus=1, max_retries=3)
def carry_out(index, binary_hash, binary, arguments, names, *contents):
    """Runs one cell on whatever machine Ray chose."""
    folder = os.path.join(tempfile.gettempdir(), f"farside-{os.getuid()}-{binary_hash[:16]}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    command = place(folder, "farside", binary, 0o700)
    for name, content in zip(names, contents):
        place(folder, name, content, 0o600)
    done = subprocess.run(
        [command, *arguments, "--end-with-parent", str(os.getpid())],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "index": index,
        "code": done.returncode,
        "stdout": done.stdout,
        "stderr": done.stderr[-MESSAGE_BYTES_MAX:],
    }


def read(path):
    with open(path, "rb") as file:
        return file.read()


def main():
    work = json.load(sys.stdin)
    ray.init(address=work["address"], log_to_driver=False, include_dashboard=False)
    path, binary_hash = work["binary"]
    binary = ray.put(read(path))
    files, tasks = {}, {}
    for cell in work["cells"]:
        for name, path in cell["files"].items():
            if name not in files:
                files[name] = ray.put(read(path))
        names = list(cell["files"])
        contents = [files[name] for name in names]
        task = carry_out.remote(
            cell["index"], binary_hash, binary, cell["arguments"], names, *contents
        )
        tasks[task] = cell["index"]
    waiting = list(tasks)
    while waiting:
        done, waiting = ray.wait(waiting)
        for task in done:
            try:
                line = ray.get(task)
            except ray.exceptions.RayError as error:
                line = {"index": tasks[task], "code": 1, "stdout": "", "stderr": str(error)}
            print(json.dumps(line), flush=True)


main()
