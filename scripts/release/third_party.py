"""third_party.py CRATE...: the licences of all that is compiled into these crates of the workspace, as one text.

Each text stands once, with the crates that have it. A crate without one in its package is named with the licence that
it declares.
"""

from __future__ import annotations

import collections
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

IS_LICENCE = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)
# C code in a crate has its licence one folder further down.
FOLDERS = (".", "*", "*/*")
# What is in the pages of reports.
ASSETS = Path("crates/report/assets")
PAGES = ("echarts.LICENSE", "echarts.LICENSE-d3", "echarts.NOTICE")
HEAD = """\
Farside's programs and libraries have these crates in them, besides the standard library of Rust (MIT or Apache-2.0,
https://www.rust-lang.org) and, in pages of `farside report`, Apache ECharts (Apache-2.0).
"""


def metadata() -> dict[str, Any]:
    command = ["cargo", "metadata", "--locked", "--format-version=1", "--filter-platform=x86_64-unknown-linux-gnu"]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))


def compiled_into(data: dict[str, Any], roots: list[str]) -> list[dict[str, Any]]:
    """Packages of others, without those that only build scripts and tests have."""
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    packages = {package["id"]: package for package in data["packages"]}
    waiting = [id for id, package in packages.items() if package["name"] in roots and package["source"] is None]
    seen = set(waiting)
    while waiting:
        for dependency in nodes[waiting.pop()]["deps"]:
            normal = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if normal and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                waiting.append(dependency["pkg"])
    return sorted((packages[id] for id in seen if packages[id]["source"]), key=lambda it: (it["name"], it["version"]))


def licence_texts(package: dict[str, Any]) -> list[str]:
    folder = Path(package["manifest_path"]).parent
    files = {file for pattern in FOLDERS for file in folder.glob(f"{pattern}/*") if IS_LICENCE.match(file.name)}
    # Sources that are called so are no licences.
    texts = [
        file for file in sorted(files) if file.is_file() and file.suffix not in (".rs", ".c", ".h", ".py", ".toml")
    ]
    return [file.read_text(errors="replace").strip() for file in texts]


def text(packages: list[dict[str, Any]]) -> str:
    parts = [HEAD]
    of_text: dict[str, list[str]] = collections.defaultdict(list)
    written: dict[str, str] = {}
    for package in packages:
        name = f"{package['name']} {package['version']}"
        parts.append(f"{name}: {package['license']}, {', '.join(package['authors']) or package['repository']}")
        for licence in licence_texts(package):
            # The same words, however they are broken into lines.
            words = " ".join(licence.split())
            written.setdefault(words, licence)
            if name not in of_text[words]:
                of_text[words].append(name)
    for words, names in of_text.items():
        parts.append(f"\n{'=' * 80}\n{', '.join(names)}\n{'=' * 80}\n\n{written[words]}")
    for name in PAGES:
        parts.append(f"\n{'=' * 80}\nApache ECharts 5.6.0: {name}\n{'=' * 80}\n\n{(ASSETS / name).read_text().strip()}")
    return "\n".join(parts) + "\n"


def main() -> None:
    packages = compiled_into(metadata(), sys.argv[1:])
    if not packages:
        sys.exit(f"none of {', '.join(sys.argv[1:])} has a dependency, or there is none of that name")
    sys.stdout.write(text(packages))


if __name__ == "__main__":
    main()
