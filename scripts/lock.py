"""Versions and hashes of everything that CI and the demo install, into requirements/: `make lock`.

PyTorch is left out, with what only it brings along: which build is right depends on the machine (`TORCH` of the Makefile).
Versions that stand there stay as long as pyproject.toml allows them; `make lock UPGRADE=--upgrade` takes newer ones.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = {"ci": ("all", "dev"), "demo": ("demo",)}
"""Of each file. What builds the package itself is in both, so that nothing is fetched beside them."""
BUILD = "hatchling>=1.27\neditables>=0.5"
INSTALLER = "pip>=26.3"
"""Replaces the one that comes with Python, first of all; that of Python 3.11 takes twice as long."""
OLDEST = "3.11"
BY_MACHINE = re.compile(r"^(torch|triton|cuda-.*|nvidia-.*)$")
HEADER = "# Made by `make lock`; do not edit. Installed with --require-hashes --no-deps, before PyTorch.\n"


def main(arguments: list[str]) -> None:
    lock("pip", INSTALLER, arguments)
    for name, extras in EXTRAS.items():
        lock(name, BUILD, ["pyproject.toml", *(part for extra in extras for part in ("--extra", extra)), *arguments])


def lock(name: str, wanted: str, arguments: list[str]) -> None:
    path = ROOT / "requirements" / f"{name}.txt"
    subprocess.run(
        [
            *(sys.executable, "-m", "uv", "pip", "compile", "-", *arguments),
            *("--universal", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"),
            *("--python-version", OLDEST, "--output-file", str(path)),
        ],
        input=wanted,
        text=True,
        cwd=ROOT,
        check=True,
    )
    path.write_text(HEADER + "".join(kept(path.read_text())))


def kept(text: str) -> list[str]:
    """What stands in a file, one requirement with its hashes after another, but for what depends on the machine."""
    found = re.findall(r"^([a-z0-9.-]+)((?:.*\\\n)*.*\n)", text, re.MULTILINE)
    return [name + rest for name, rest in found if not BY_MACHINE.match(name)]


if __name__ == "__main__":
    main(sys.argv[1:])
