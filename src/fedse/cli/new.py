"""`fedse new`: a file to begin with, which runs as it stands."""

from __future__ import annotations

import importlib.util
import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from fedse.cli.console import say
from fedse.errors import BadInput
from fedse.storage.strict_yaml import to_yaml

app = typer.Typer(no_args_is_help=True, help="Write a file to begin with: an experiment, or a world of your own.")

_EXPERIMENT, _MODULE, _CLASS = "mine", "lamp_world", "LampWorld"
"""Names in the files that are shipped, which become the user's."""


@app.command("experiment")
def experiment(
    name: Annotated[str, typer.Argument(help="Name of the experiment and of its file, NAME.yaml.")],
) -> None:
    """Write NAME.yaml: two sites and the model inside the package, a few minutes on two CPU cores."""
    from fedse.experiments.folder_names import name_problem

    if problem := name_problem(name):
        raise BadInput(problem)
    file = Path(f"{name}.yaml")
    line = to_yaml({"name": name})  # A name such as 2024 needs quotation marks.
    _write({file: _shipped("new_experiment.yaml").replace(f"name: {_EXPERIMENT}\n", line)})
    _tell(
        f"Wrote {file}. Next:",
        {
            f"fedse run {file} --dry-run": "every key with its value, and how long it will take",
            f"fedse run {file}": "run it; the same command resumes it",
        },
    )


@app.command("world")
def world(
    name: Annotated[str, typer.Argument(help="Name of the world and of its files, NAME.py and NAME.yaml.")],
) -> None:
    """Write NAME.py, a small world to change into yours, and NAME.yaml, an experiment that runs it in seconds."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,49}", name):
        raise BadInput(
            f"'{name}' cannot be the name of a module: use lower-case letters, digits and '_', such as `my_world`."
        )
    if importlib.util.find_spec(name) is not None and not Path(f"{name}.py").exists():
        raise BadInput(
            f"there is a Python module called '{name}' already, which would be found first: choose another name."
        )
    made = "".join(word.capitalize() for word in name.split("_"))
    code, file = Path(f"{name}.py"), Path(f"{name}.yaml")
    texts = {code: _shipped("new_world.txt"), file: _shipped("new_world.yaml")}
    _write({path: text.replace(_MODULE, name).replace(_CLASS, made) for path, text in texts.items()})
    _tell(
        f"Wrote {code} and {file}. Next:",
        {
            f"fedse play {name}:{made}": "be the agent",
            f"fedse worlds check {name}:{made}": "does it keep the promises of a world?",
            f"fedse run {file}": "let two sites learn it",
        },
    )


def _tell(title: str, commands: dict[str, str]) -> None:
    say(title)
    for command, purpose in commands.items():
        say(f"  {command:<{max(map(len, commands))}}   {purpose}")


def _shipped(name: str) -> str:
    return (files("fedse.cli") / name).read_text()


def _write(texts: dict[Path, str]) -> None:
    if taken := [str(path) for path in texts if path.exists()]:
        raise BadInput(f"{taken[0]} exists already: choose another name, or delete it.")
    for path, text in texts.items():
        path.write_text(text)
