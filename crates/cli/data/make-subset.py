#!/usr/bin/env python3
"""Makes debian-12-subset.txt: some packages of a Debian index with all that they need.

Usage:  make-subset.py SOURCE-AND-DATE PACKAGE... < Packages > debian-12-subset.txt

Only names are kept, of the fields Package, Pre-Depends, Depends and Provides. The subset is closed:
of alternatives `a | b` the first one available is followed, and of a virtual package the provider
that comes first in the alphabet; alternatives that do not get into the subset that way are left
out, and so are provided names that nothing in the subset depends on.
"""

import re
import sys

FIELDS = ("Pre-Depends", "Depends")


def items(value):
    """The names in a list of dependencies: a list of alternatives for each item."""
    return [
        [re.split(r"[\s(:\[<]", name.strip())[0] for name in item.split("|")]
        for item in value.split(",")
        if item.strip()
    ]


def read(text):
    """By package: the field names with their values. Of several versions the first is taken."""
    packages = {}
    for stanza in text.split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): ?(.*)$", stanza, re.MULTILINE))
        if "Package" in fields:
            packages.setdefault(fields["Package"], fields)
    return packages


def closure(packages, providers, seeds):
    """The packages that the seeds need, seeds included."""
    chosen, waiting = set(), list(seeds)
    while waiting:
        package = waiting.pop()
        if package in chosen:
            continue
        chosen.add(package)
        for field in FIELDS:
            for names in items(packages[package].get(field, "")):
                found = next((n for n in names if n in packages or n in providers), None)
                if found is None:
                    continue
                waiting.append(found if found in packages else min(providers[found]))
    return chosen


def write(packages, providers, chosen, source, seeds):
    provided = {n: providers[n] & chosen for n in providers if n not in packages}
    known = chosen | {name for name, by in provided.items() if by}
    needed = set()
    stanzas = []
    for package in sorted(chosen):
        lines = [f"Package: {package}"]
        for field in FIELDS:
            lists = ([n for n in names if n in known] for names in items(packages[package].get(field, "")))
            texts = dict.fromkeys(" | ".join(dict.fromkeys(names)) for names in lists if names)
            needed.update(n for text in texts for n in text.split(" | "))
            if texts:
                lines.append(f"{field}: {', '.join(texts)}")
        stanzas.append((package, lines))
    print(f"# Part of the package index of {source}.")
    print("# Made by make-subset.py from the packages below and all that they need; facts only: names of")
    print("# packages and which needs which, versions removed.")
    print(f"# {' '.join(seeds)}")
    for package, lines in stanzas:
        names = sorted({n for alternatives in items(packages[package].get("Provides", "")) for n in alternatives})
        names = [n for n in names if n in needed and n in provided]
        if names:
            lines.append(f"Provides: {', '.join(names)}")
        print("\n" + "\n".join(lines))


def main():
    source, seeds = sys.argv[1], sys.argv[2:]
    packages = read(sys.stdin.read())
    providers = {}
    for package, fields in packages.items():
        for (name,) in items(fields.get("Provides", "")):
            providers.setdefault(name, set()).add(package)
    missing = [seed for seed in seeds if seed not in packages]
    if missing:
        sys.exit(f"no such package in the index: {' '.join(missing)}")
    write(packages, providers, closure(packages, providers, seeds), source, seeds)


main()
