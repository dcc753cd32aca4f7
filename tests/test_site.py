"""The documentation site has every public name and every command, and its pages lie where the navigation says."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from pathlib import Path

import click
from typer.main import get_command

import fedse
from fedse.cli import app

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from docs_commands import render  # noqa: E402


def test_every_public_name_is_on_the_page_about_python_and_all_its_names_are_there() -> None:
    named = re.findall(r"^::: ([\w.]+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    objects = []
    for path in named:
        home, _, name = path.rpartition(".")
        module = importlib.import_module(home)
        objects.append(getattr(module, name) if hasattr(module, name) else importlib.import_module(path))
    assert [name for name in fedse.__all__ if name != "__version__" and getattr(fedse, name) not in objects] == []


def commands(command: click.Command, path: str) -> list[str]:
    if not isinstance(command, click.Group):
        return [path]
    inner = [found for name, item in command.commands.items() for found in commands(item, f"{path} {name}")]
    return [path, *inner] if command.invoke_without_command else inner


def test_every_command_is_on_the_page_about_commands_with_its_options() -> None:
    page = render()
    assert re.findall(r"^### (.+)$", page, re.MULTILINE) == commands(get_command(app), "fedse")
    assert "| `--max-minutes` |" in page and "| `FILE` | required |" in page


def test_the_written_page_about_commands_names_every_top_command() -> None:
    page = (ROOT / "docs/cli.md").read_text()
    tops = {path.split()[1] for path in commands(get_command(app), "fedse")}
    assert [name for name in tops if f"fedse {name}" not in page] == []


def test_every_extra_is_on_the_page_about_installing() -> None:
    page = (ROOT / "docs/learn/install.md").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [name for name in extras if f"`{name}`" not in page] == []
