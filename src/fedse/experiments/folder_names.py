"""Names of experiments, sweeps and sites, after which folders are called."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator

from fedse.experiments.file import at_key
from fedse.visible import short

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def name_problem(name: str) -> str:
    """What is wrong with a name; empty if nothing is."""
    if _NAME.fullmatch(name):
        return ""
    return (
        f"'{short(name)}' cannot be a name: use at most 100 letters, digits, '.', '_' and '-', the first a letter or a "
        "digit, such as `my_first`."
    )


def check_names(names: Iterable[str]) -> None:
    """Of keys that are names. Raises an error that points at the key."""
    for name in names:
        if problem := name_problem(name):
            raise at_key(problem, name)


def _checked(name: str) -> str:
    if problem := name_problem(name):
        raise at_key(problem)
    return name


FolderName = Annotated[str, AfterValidator(_checked)]
"""An option that names a folder of runs."""
