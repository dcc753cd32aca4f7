"""What the command line says of itself: a version, a description of everything, completion."""

from __future__ import annotations

import os
from collections.abc import Iterator

import click
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import fedse
from fedse.cli import app, console
from fedse.plugins import summary
from fedse.plugins.shipped import KNOWN


def everything(command: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from everything(inner, *path, name)


COMMANDS = dict(everything(get_command(app)))


def test_the_version_is_told() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"fedse {fedse.__version__}\n"


@pytest.mark.parametrize("typed, meant", [(["rnu"], "run"), (["worlds", "chek"], "check")])
def test_a_mistyped_command_is_answered_with_the_nearest_once(typed: list[str], meant: str) -> None:
    done = CliRunner().invoke(app, typed)
    assert done.exit_code == 2 and done.output.count(f"Did you mean '{meant}'?") == 1


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: " ".join(path) or "fedse")
def test_every_argument_and_option_is_described(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    assert path == () or command.help, "the command itself"
    assert [item.name for item in command.params if not getattr(item, "help", None)] == []


def test_a_shell_completes_commands_and_names_of_slots() -> None:
    def completed(line: str) -> set[str]:
        words = line.split(" ")
        environment = {
            "_FEDSE_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
            "_TYPER_COMPLETE_TESTING": "True",
        }
        done = CliRunner().invoke(app, [], prog_name="fedse", env={**os.environ, **environment})
        return set(done.output.split())

    assert {"run", "runs"} <= completed("fedse ru")
    assert completed("fedse plugins cur") == {"curriculum"}
    assert completed("fedse play maz") == {"maze"}


def test_every_plug_in_is_listed_with_its_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedse.plugins import resolve

    monkeypatch.setattr(console, "PAGE", 500)
    done = CliRunner().invoke(app, ["plugins"])
    assert done.exit_code == 0, done.output
    for kind, names in KNOWN.items():
        assert all(summary(resolve(kind, name)) in done.output and name in done.output for name in names)
    filters = CliRunner().invoke(app, ["plugins", "filter"]).output
    assert "best_of_task" in filters and "textcraft" not in filters


def test_an_unknown_slot_is_answered_with_the_nearest() -> None:
    done = CliRunner().invoke(app, ["plugins", "filters"])
    assert done.exit_code == 2 and "there is no slot 'filters': did you mean 'filter'?" in done.stderr
