"""What a site has agreed to, in its own file: an experiment that says something else is not worked for.

An experiment file often comes from whoever runs the hub. What is pinned here does not change with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedse.errors import BadInput
from fedse.experiments.old_keys import new_name
from fedse.experiments.options import Experiment
from fedse.plugins.finding import nearest

AT_MOST, ONE_OF = "at_most", "one_of"


def check_agreed(path: Path, agreed: Mapping[str, Any], experiment: Experiment) -> None:
    """Raises `BadInput` for the first key whose value is another than the site agreed to."""
    content = experiment.model_dump(mode="json")
    for key, wanted in agreed.items():
        found = _at(path, content, key)
        if isinstance(wanted, Mapping) and wanted.keys() == {AT_MOST}:
            _check_number(path, key, wanted[AT_MOST], found)
        elif isinstance(wanted, Mapping) and wanted.keys() == {ONE_OF} and isinstance(wanted[ONE_OF], list):
            if found not in wanted[ONE_OF]:
                _refuse(path, key, found, f"one of {', '.join(map(str, wanted[ONE_OF]))}")
        elif isinstance(wanted, Mapping):
            raise BadInput(
                f"{path}: agreed.{key}: give a value, {{{AT_MOST}: NUMBER}} or {{{ONE_OF}: [VALUES]}}; what is inside a key "
                f"is named with a dot, such as `{key}.name`."
            )
        elif found != wanted or isinstance(found, bool) is not isinstance(wanted, bool):
            _refuse(path, key, found, str(wanted))


def _check_number(path: Path, key: str, most: Any, found: Any) -> None:
    if isinstance(most, bool) or not isinstance(most, int | float):
        raise BadInput(f"{path}: agreed.{key}: {AT_MOST} needs a number, not {most!r}.")
    # What has no bound in the experiment is beyond any.
    if isinstance(found, bool) or not isinstance(found, int | float) or not found <= most:
        _refuse(path, key, found, f"at most {most:g}")


def _refuse(path: Path, key: str, found: Any, wanted: str) -> None:
    shown = (
        "nothing (null)" if found is None else f"{str(found)[:100]!r}" if isinstance(found, str) else str(found)[:100]
    )
    raise BadInput(
        f"{path}: the experiment asks for {key} = {shown}, and this site agreed to {wanted} (`agreed` in its file): it "
        "works for no other; ask for an experiment that keeps to it, or change what you agree to."
    )


def _at(path: Path, content: Any, key: str) -> Any:
    steps = key.split(".")
    for position, step in enumerate(steps):
        if not isinstance(content, Mapping) or step not in content:
            known = list(content) if isinstance(content, Mapping) else []
            if new := new_name(steps[: position + 1], known):
                raise BadInput(f"{path}: agreed.{key}: '{step}' is called `{new}` now.")
            before = ".".join(steps[:position]) or "the experiment"
            raise BadInput(
                f"{path}: agreed.{key}: {before} has no key '{step}'; {nearest(step, known)}known: "
                f"{', '.join(known) or 'none'}."
            )
        content = content[step]
    return content
