"""`--set KEY=VALUE` for a single plug-in: what worlds and aggregators are given on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
import yaml

from fedse.errors import BadInput
from fedse.plugins import known
from fedse.storage.strict_yaml import parse_value


def names_in(slot: str) -> Callable[[str], list[str]]:
    """Completes names of a slot's plug-ins in a shell."""

    def completed(beginning: str) -> list[str]:
        return [name for name in known(slot) if name.startswith(beginning)]

    return completed


WorldName = Annotated[
    str,
    typer.Argument(
        help="A short name such as maze, or package.module:Class.",
        autocompletion=names_in("world"),
        show_default=False,
    ),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="An option of it; may be repeated.")
]


def read_settings(settings: list[str] | None, example: str) -> dict[str, Any]:
    """The options by name, with values as YAML would read them."""
    options: dict[str, Any] = {}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not equals:
            raise BadInput(f"--set {setting}: write it as KEY=VALUE, for example --set {example}.")
        try:
            options[key.strip()] = parse_value(value)
        except yaml.YAMLError as error:
            raise BadInput(f"--set {setting}: the value is not a YAML scalar.") from error
    return options
