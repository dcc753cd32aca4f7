"""What CI and the demo install is pinned with hashes, and is what pyproject.toml asks for."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BLOCK = re.compile(r"^([a-z0-9.-]+)==([^ \\]+)(?: ; [^\\]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.M)


def wanted(extras: set[str]) -> list[Requirement]:
    """Requirements of the package with these extras, and with those that they name in turn."""
    found = [Requirement(line) for line in PROJECT["dependencies"]]
    for extra in extras:
        for requirement in map(Requirement, PROJECT["optional-dependencies"][extra]):
            found += wanted(requirement.extras) if requirement.name == "fedse" else [requirement]
    return found


@pytest.mark.parametrize(("name", "extras"), [("ci", {"all", "dev"}), ("demo", {"demo"})])
def test_what_is_locked_is_what_the_project_asks_for(name: str, extras: set[str]) -> None:
    text = (ROOT / f"requirements/{name}.txt").read_text()
    locked = {found[1]: found[2] for found in BLOCK.finditer(text)}
    assert "".join(found[0] for found in BLOCK.finditer(text)) == text.partition("\n")[2], "nothing without a hash"
    assert not any(re.match("torch|nvidia|triton|cuda", name) for name in locked) and "://" not in text
    for requirement in wanted(extras):
        package = canonicalize_name(requirement.name)
        if package != "torch":
            told = f"requirements/{name}.txt has no {requirement}: run `make lock`"
            assert package in locked and requirement.specifier.contains(locked[package], prereleases=True), told
    for package in ("hatchling", "editables"):
        assert package in locked, "fedse is built without fetching anything more"


def test_the_makefile_installs_nothing_but_pytorch_without_a_hash() -> None:
    made = (ROOT / "Makefile").read_text().partition("# What is locked first")[2]
    installed = re.findall(r"^\t\$\((PIP|LOCKED|FEDSE)\)(.*)$", made, re.M)
    assert [name for name, _ in installed] == ["LOCKED", "LOCKED", "PIP", "FEDSE"] * 2
    assert all("$(TORCH)" in rest for name, rest in installed if name == "PIP")


def test_pip_itself_is_locked_and_installed_first() -> None:
    text = (ROOT / "requirements/pip.txt").read_text()
    (locked,) = BLOCK.finditer(text)
    assert locked[0] == text.partition("\n")[2] and locked[1] == "pip"
    for recipe in (ROOT / "Makefile").read_text().split("-m venv $(VENV)\n")[1:]:
        assert recipe.lstrip().startswith("$(LOCKED) --quiet -r requirements/pip.txt")


def test_what_depends_on_the_machine_is_taken_out_of_a_lock() -> None:
    spec = importlib.util.spec_from_file_location("lock", ROOT / "scripts/lock.py")
    assert spec is not None and spec.loader is not None
    lock = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lock)
    blocks = [
        f"{name}==1.0 ; sys_platform == 'linux' \\\n    --hash=sha256:{'a' * 64} \\\n    --hash=sha256:{'b' * 64}\n"
        for name in ("attrs", "nvidia-nccl-cu13", "torch", "torchmetrics", "triton")
    ]
    assert lock.kept("".join(blocks)) == [blocks[0], blocks[3]]


def test_every_locked_package_has_its_licence_on_the_page() -> None:
    page = (ROOT / "docs/licences.md").read_text()
    listed = set(re.findall(r"^\| ([a-z0-9.-]+) \|", page, re.M))
    text = (ROOT / "requirements/ci.txt").read_text()
    everywhere = {found[1] for found in BLOCK.finditer(text) if " ; " not in found[0].splitlines()[0]}
    assert everywhere <= listed and "not stated" not in page
