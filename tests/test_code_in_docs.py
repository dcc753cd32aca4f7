"""Code in the documents works: YAML loads, Python runs or its names are there, commands are what the parser takes.

A block that cannot run here stands below a comment that says why, `<!-- not run: REASON -->`. Its names have to be there all
the same, and YAML below such a comment has to be refused.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import itertools
import json
import os
import re
import shlex
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
import pytest
import yaml
from typer.main import get_command

from fedse import load_experiment
from fedse.cli import app
from fedse.errors import FedseError
from fedse.experiments.options import Experiment
from fedse_command import command

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?```(?P<kind>\w*)(?P<rest>[^\n]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Programs of others: their lines follow their own documentation.
FOREIGN = {"vllm", "llama-server", "podman", "transformers", "hf", "tensorboard", "export", "cd", "for", "done"}


class Block(NamedTuple):
    page: str
    kind: str
    title: str
    text: str
    reason: str | None

    @property
    def name(self) -> str:
        return f"{self.page}: {self.title or self.text.strip().splitlines()[0][:40]}"


def fenced(*kinds: str) -> list[Block]:
    return [
        Block(
            str(page.relative_to(ROOT)),
            found["kind"],
            (re.findall(r'title="([^"]+)"', found["rest"]) or [""])[0],
            found["text"],
            found["reason"],
        )
        for page in PAGES
        for found in FENCE.finditer(page.read_text())
        if found["kind"] in kinds
    ]


def named(block: Block) -> str:
    return block.name


def test_no_block_is_of_a_kind_that_nobody_looks_at() -> None:
    kinds = {found["kind"] for page in PAGES for found in FENCE.finditer(page.read_text())}
    # A unit file and a container file are for machines that a test does not have.
    assert kinds <= {"yaml", "python", "json", "toml", "bash", "", "ini", "dockerfile", "text"}


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A folder with all files of a page, and with the modules of the others, which it may use."""

    def folder(page: str) -> Path:
        for block in fenced("python", "yaml"):
            if block.title and (block.page == page or block.kind == "python"):
                (tmp_path / block.title).write_text(block.text)
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        return tmp_path

    return folder


@pytest.mark.parametrize("block", fenced("yaml"), ids=named)
def test_yaml_is_an_experiment_or_a_part_of_one(block: Block, beside: Callable[[str], Path]) -> None:
    written = yaml.safe_load(block.text)
    base = {"name": "part", "model": "nano", "clients": {"here": {"worlds": ["maze"]}}}
    file = beside(block.page) / "part.yaml"
    file.write_text(yaml.safe_dump({**base, **written}, sort_keys=False))
    if block.reason is None:
        load_experiment(file)
    else:
        with pytest.raises(FedseError):
            load_experiment(file)


@pytest.mark.parametrize("block", fenced("python"), ids=named)
def test_python_runs_or_at_least_what_it_imports_is_there(block: Block, beside: Callable[[str], Path]) -> None:
    folder = beside(block.page)
    program = compile(block.text, block.name, "exec")
    if block.reason is None:
        exec(program, {"__name__": Path(block.title).stem})  # noqa: S102
        return
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Import):
            assert all(importlib.util.find_spec(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fedse"):
            module = importlib.import_module(node.module)
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert (folder / f"{node.module}.py").exists() or importlib.util.find_spec(node.module.split(".")[0])


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted({block.page for block in fenced("bash") if "learn" in block.page}))
def test_the_scripts_of_the_pages_to_learn_from_run(page: str, beside: Callable[[str], Path]) -> None:
    folder = beside(page)
    for block in fenced("bash"):
        for line in block.text.splitlines() if block.page == page else []:
            program, *words = shlex.split(line)
            assert program == "fedse"
            done = command(*words, folder=folder, environment={**os.environ, "PYTHONPATH": str(folder)})
            assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("block", fenced("json", "toml"), ids=named)
def test_json_and_toml_can_be_read(block: Block) -> None:
    assert json.loads(block.text) if block.kind == "json" else tomllib.loads(block.text)


def lines(page: Path) -> list[tuple[str, bool]]:
    """Command lines of a page: whole ones in blocks and indented text, and what is named between backquotes."""
    text = page.read_text().replace("\\\n", " ")
    rest = FENCE.sub("", text)
    blocks = [found["text"] for found in FENCE.finditer(text) if found["kind"] in ("bash", "")]
    whole = [
        *(line for block in blocks for line in block.splitlines()),
        *re.findall(r"^ {4,}((?:fedse|python|make|pip) [^\n]+)", rest, re.MULTILINE),
    ]
    named = re.findall(r"`((?:fedse|pip install) [^`\n]+|make [a-z-]+)`", rest)
    return [*((line, True) for line in whole), *((line, False) for line in named)]


# A changelog names commands of its time.
@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_command_lines_are_what_programs_take(page: Path) -> None:
    for line, whole in lines(page):
        # What stands behind several blanks, or a #, explains the command.
        for part in re.split(r"; (?:do )?|&&? ?", re.split(r"\s{2,}|\s#", line.strip())[0]):
            try:
                check(shlex.split(part), whole)
            except (click.UsageError, AssertionError, ValueError) as problem:
                raise AssertionError(f"{page.name}: {line!r}: {problem}") from problem


def check(words: list[str], whole: bool) -> None:
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    if not words or words[0] in FOREIGN:
        return
    program, *rest = words
    if program == "fedse":
        parsed(whole_command(), rest, whole)
    elif program == "python":
        source = "" if rest[0] == "-m" else (ROOT / rest[0]).read_text()
        unknown = [word for word in rest[1:] if word.startswith("--") and f'"{word.split("=")[0]}"' not in source]
        assert rest[0] == "-m" or not unknown, f"{rest[0]} has no {unknown}"
    elif program == "make":
        known = set(re.findall(r"^([\w-]+(?: [\w-]+)*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        assert [
            word for word in rest if "=" not in word and word not in {name for line in known for name in line.split()}
        ] == []
    else:
        assert program in ("pip", "jupyter"), f"what is {program}?"
        extras = {
            extra for word in rest for found in re.findall(r"(?:fedse|^\.)\[(.*)\]", word) for extra in found.split(",")
        }
        assert extras <= PROJECT["optional-dependencies"].keys()


@cache
def whole_command() -> click.Command:
    return get_command(app)


def parsed(command: click.Command, words: list[str], whole: bool) -> None:
    """Like the command line itself, but nothing is run and no file need exist."""
    if isinstance(command, click.Group) and words and not words[0].startswith("-"):
        if words[0].isupper():  # COMMAND stands for any of them.
            return
        assert words[0] in command.commands, f"no command {words[0]}"
        parsed(command.commands[words[0]], words[1:], whole)
        return
    shown = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    unknown = [word for word in words if word.startswith("-") and word.split("=")[0] not in shown | {"--help"}]
    assert not unknown, f"no option {unknown}"
    for word, setting in itertools.pairwise(words):
        if word == "--set" and command.name in ("run", "demo", "sweep", "profile", "reproduce"):
            assert setting.split("=")[0].split(".")[0] in Experiment.model_fields, setting
    if whole and "--help" not in words:
        values, left, _ = command.make_parser(click.Context(command)).parse_args(words)
        missing = [item.name for item in command.params if item.required and not values.get(str(item.name))]
        assert not left and not missing, f"left over: {left}, missing: {missing}"
