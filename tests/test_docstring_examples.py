"""Examples in docstrings say what the code does today."""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def with_examples(folder: Path) -> list[str]:
    """Modules by the names under which they are imported from this folder."""
    files = [path for path in sorted(folder.rglob("*.py")) if ">>> " in path.read_text()]
    return [".".join(path.relative_to(folder).with_suffix("").parts) for path in files]


def assert_right(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted and not found.failed, "the output has what was expected and what came"


@pytest.mark.parametrize("name", with_examples(ROOT / "src"))
def test_of_the_package(name: str) -> None:
    assert_right(importlib.import_module(name))


@pytest.mark.parametrize("name", with_examples(ROOT / "benchmarks"))
def test_of_the_benchmarks(name: str, benchmarks: Callable[[str], ModuleType]) -> None:
    assert_right(benchmarks(name))
