"""What is written in fedse's own files, read once for all tests that look for something in them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "fedse"


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> tuple[ast.ImportFrom, ...]:
    """All that say where they import from, at the top of a file or inside functions."""
    return tuple(node for node in ast.walk(tree(path)) if isinstance(node, ast.ImportFrom))
