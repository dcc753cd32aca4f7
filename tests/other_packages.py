"""Packages that the environment of the tests does not have, for tests marked `torture`: fetched with pip, kept apart."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


def unpacked_wheel(requirement: str, folder: Path, python: str = "") -> Path:
    """A wheel without what it depends on, unpacked into a folder that can stand on PYTHONPATH."""
    chosen = ["--python-version", python, "--only-binary", ":all:"] if python else []
    _pip(sys.executable, "download", "--no-deps", *chosen, "--dest", str(folder / "wheel"), requirement)
    (wheel,) = (folder / "wheel").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


def environment_with(*requirements: str, folder: Path) -> Path:
    """The interpreter of a new virtual environment that has these packages, and fedse's core from this repository."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    python = folder / "bin" / "python"
    _pip(str(python), "install", "--quiet", *requirements, str(Path(__file__).parents[1]))
    return python


def installed_beside(*requirements: str, folder: Path) -> Path:
    """A folder for PYTHONPATH with these packages and nothing they depend on, for what the tests' environment nearly has."""
    _pip(sys.executable, "install", "--quiet", "--no-deps", "--target", str(folder), *requirements)
    return folder


def _pip(python: str, *arguments: str) -> None:
    command = [python, "-m", "pip", *arguments, "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    if done.returncode:
        pytest.skip(f"pip cannot get {arguments[-1]}: {done.stderr.strip().splitlines()[-1:]}")
