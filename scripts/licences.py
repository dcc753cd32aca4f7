"""The licences of everything that CI and the demo install, as docs/licences.md: `make licences`."""

from __future__ import annotations

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEADER = """# Licences

What `make test` (requirements/ci.txt) and `make demo` (requirements/demo.txt) install, with the licence that each package
states in its metadata. Made by `make licences`; do not edit. fedse itself is under Apache-2.0. Packages that only other
machines need than the one on which the table was made are not in it. PyTorch comes in builds for each kind of machine, and
those for GPUs bring NVIDIA's libraries, under NVIDIA's terms.

| package | version | licence | demo |
| --- | --- | --- | --- |
"""


def locked(name: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9.-]+)==", (ROOT / f"requirements/{name}.txt").read_text(), re.MULTILINE))


def licence(found: Distribution) -> str:
    """The SPDX expression if there is one, then classifiers, then the first line of a text."""
    told = found.metadata
    if expression := told.get("License-Expression"):
        return expression
    classified = [
        entry.rpartition(" :: ")[2]
        for entry in told.get_all("Classifier") or []
        if entry.startswith("License ::") and entry != "License :: OSI Approved"
    ]
    if classified:
        return ", ".join(classified)
    lines = (told.get("License") or "").strip().splitlines()
    return lines[0].strip() if lines else "not stated"


def rows() -> list[str]:
    demo = locked("demo")
    found = []
    for name in sorted(locked("ci") | demo | {"torch"}):
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue
        mark = "yes" if name in demo or name == "torch" else ""
        found.append(f"| {name} | {package.version.split('+')[0]} | {licence(package).replace('|', '/')} | {mark} |")
    return found


if __name__ == "__main__":
    print(HEADER + "\n".join(rows()))
