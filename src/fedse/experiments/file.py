"""What an experiment file says: overrides from the command line, and errors that point at the line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError

from fedse.errors import BadInput
from fedse.experiments.key_examples import example_of, model_in
from fedse.experiments.old_keys import advice
from fedse.plugins import nearest, nearest_or_all
from fedse.storage.strict_yaml import KeyPath, parse_value
from fedse.visible import short

_TOLD = 10
"""Problems of one file that are told in full."""
_NO_OPTIONS = (
    "it takes no options. A class of your own lists those it takes in a nested class `Options` (docs/howto/plugins.md)."
)
_AT_KEY = "at_key"
_LONGEST = 800
"""Characters of one message."""


def override(content: dict[str, Any], settings: Sequence[str], places: dict[KeyPath, str]) -> None:
    """Apply `a.b=c` settings in place. A slot given by its bare name becomes a mapping that can take options."""
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise BadInput(f"--set {short(setting)}: expected KEY=VALUE, such as --set rounds=3.")
        try:
            parsed = parse_value(value)
        except yaml.YAMLError as error:
            problem = getattr(error, "problem", "") or "it cannot be read"
            raise BadInput(
                f"--set {short(setting)}: '{short(value)}' is not a YAML value ({short(problem, 200)})."
            ) from error
        at = _put(content, key.split("."), parsed, setting)
        for replaced in [known for known in places if known[: len(at)] == at]:
            del places[replaced]
        for end in range(1, len(at) + 1):
            places.setdefault(at[:end], f"--set {short(setting)}")


def _put(content: Any, keys: Sequence[str], value: Any, setting: str) -> KeyPath:
    path: KeyPath = ()
    for position, key in enumerate(keys):
        last = position == len(keys) - 1
        at: str | int = key
        if isinstance(content, list):
            if not key.isdecimal() or int(key) >= len(content):
                raise BadInput(
                    f"--set {short(setting)}: '{short(key)}' must be a position from 0 to {len(content) - 1}."
                )
            at = int(key)
        elif key not in content and not last:
            content[key] = {}
        path = (*path, at)
        if last:
            content[at] = value
            break
        if isinstance(content[at], str):
            content[at] = {"name": content[at]}
        if not isinstance(content[at], (dict, list)):
            raise BadInput(
                f"--set {short(setting)}: '{short('.'.join(keys[: position + 1]))}' is a plain value and has no keys."
            )
        content = content[at]
    return path


PLACES = "places"
"""Key of a validation's context: where each key stands, in words."""


def explain(error: ValidationError, model: type[BaseModel], places: Mapping[KeyPath, str]) -> str:
    """Each problem on a line of its own: where, what is wrong, what would be right. Of very many, the first ones."""
    messages = []
    found = error.errors(include_url=False)
    for at, message in islice(_problems(found, (), model), _TOLD):
        place = next(places[at[:end]] for end in range(len(at), -1, -1) if at[:end] in places)
        messages.append(": ".join([place, *([".".join(map(short, at))] if at else []), message]))
    if (more := _count(found) - _TOLD) > 0:
        messages.append(f"... and {more:,} more problems.")
    return "\n".join(messages)


def at_key(message: str, *below: str) -> PydanticCustomError:
    """An error of a validator, told at a key below what it validates, in the words of the message and no others."""
    return PydanticCustomError(_AT_KEY, "{message}", {"message": message, "at": below})


def _count(errors: Sequence[Any]) -> int:
    return sum(_count(item["ctx"]["errors"]) if item["type"] == "part_options" else 1 for item in errors)


def _problems(errors: Sequence[Any], at: KeyPath, model: type[BaseModel]) -> Iterator[tuple[KeyPath, str]]:
    for item in errors:
        where = (*at, *item["loc"])
        context = item.get("ctx", {})
        if item["type"] == "part_options":
            yield from _problems(context["errors"], where, context["model"])
        elif item["type"] == "extra_forbidden":
            known = _keys_beside(model, item["loc"])
            if told := advice(where, known, item["input"]):
                yield where, told
                continue
            listed = f"{nearest_or_all(short(where[-1]), known, 'Known keys:')}." if known else _NO_OPTIONS
            yield where, f"unknown key; {listed}"
        elif item["type"] == "missing":
            yield where, "this key is missing."
        elif item["type"] == _AT_KEY:
            yield (*where, *context["at"]), short(item["msg"], _LONGEST)
        elif item["type"] in ("unknown_name", "secret"):
            yield where, short(item["msg"], _LONGEST)
        elif item["loc"] and _is_group(item):
            example = example_of(model, item["loc"])
            yield where, f"a group of keys is expected here, {example}, got {short(repr(item['input']))}."
        else:
            said = short(item["msg"].removeprefix("Value error, "), _LONGEST)
            # Of keys that do not go together the sentence names those it is about, and the rest is a whole experiment.
            got = f", got {short(repr(item['input']))}" if where else ""
            meant = nearest(str(item["input"]), _choices(context)) if item["type"] == "literal_error" else ""
            yield where, f"{said[0].lower()}{said[1:]}{got}{f'; {meant.strip()}' if meant else '.'}"


def _choices(context: Mapping[str, Any]) -> list[str]:
    """Values of which one was expected: pydantic gives them as a text."""
    return re.findall(r"'([^']*)'", context["expected"])


def _is_group(item: Any) -> bool:
    """Whether something else stands where keys and values belong."""
    no_keys = item["type"] in ("model_type", "model_attributes_type", "dict_type")
    return no_keys or (item["type"] == "too_short" and item["input"] == {})


def _keys_beside(model: type[BaseModel], at: Sequence[Any]) -> list[str]:
    """Keys that are known where an unknown one was found."""
    for step in at[:-1]:
        field = model.model_fields.get(str(step))
        inner = model_in(field.annotation) if field else None
        if inner is not None:
            model = inner
    return list(model.model_fields)


def differences(one: Any, other: Any, key: str = "") -> list[str]:
    """The keys that differ, as far down as both have the same ones."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [
            found
            for name in one
            for found in differences(one[name], other[name], f"{key}.{name}" if key else str(name))
        ]
    return [] if one == other else [key]
