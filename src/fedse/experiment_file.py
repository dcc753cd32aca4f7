"""Reading an experiment file: strict YAML, overrides from the command line, and errors that point at the line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from fedse.errors import BadInput
from fedse.plugins import nearest

KeyPath = tuple[str | int, ...]


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML in which a key may stand once and 1e-3 is a number."""


_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$"),
    list("-+0123456789."),
)
# The resolver above also matches plain integers; those are tried first.
for _letter in "-+0123456789.":
    _StrictLoader.yaml_implicit_resolvers[_letter].sort(key=lambda item: item[0] != "tag:yaml.org,2002:int")


class _StrictDumper(yaml.SafeDumper):
    """Quotes every text that `_StrictLoader` would take for something else."""

    yaml_implicit_resolvers = _StrictLoader.yaml_implicit_resolvers


def to_yaml(content: Mapping[str, Any]) -> str:
    """The text from which `read_yaml` reads the same content."""
    return yaml.dump(content, Dumper=_StrictDumper, sort_keys=False, allow_unicode=True)


def parse_value(text: str) -> Any:
    """A value as it would stand in the file: `7`, `true`, `1e-3`, `[a, b]` or a word."""
    try:
        return yaml.load(text, _StrictLoader)
    except (ValueError, KeyError, TypeError) as error:
        # PyYAML lets these through for scalars that only look like a number or a date, and for keys that are lists.
        raise yaml.YAMLError(f"a value cannot be read: {error}") from error


def read_yaml(path: Path) -> tuple[dict[str, Any], dict[KeyPath, str]]:
    """The file's content and the place (file and line) where each key stands."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise BadInput(f"there is no file {path}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path}: {error}.") from error
    try:
        root = yaml.compose(text, _StrictLoader)
        lines: dict[KeyPath, int] = {}
        if root is not None:
            _locate(root, (), lines, path)
        content = parse_value(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadInput(f"{path}, line {line}: not valid YAML ({error.problem}).") from error
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: not valid YAML ({str(error).splitlines()[0]}).") from error
    except RecursionError as error:
        raise BadInput(f"{path}: not usable, because a value contains itself or is nested too deeply.") from error
    if not isinstance(content, dict):
        raise BadInput(f"{path} must hold keys and values, such as `rounds: 20`.")
    return content, {at: f"{path}, line {line}" for at, line in lines.items()}


def _locate(node: yaml.Node, at: KeyPath, lines: dict[KeyPath, int], path: Path) -> None:
    lines[at] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise BadInput(f"{path}, line {key.start_mark.line + 1}: a key must be a word.")
            if key.value in seen:
                raise BadInput(
                    f"{path}, line {key.start_mark.line + 1}: the key '{key.value}' stands here a second time."
                )
            seen.add(key.value)
            _locate(value, (*at, key.value), lines, path)
            lines[*at, key.value] = key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _locate(value, (*at, index), lines, path)


def override(content: dict[str, Any], settings: Sequence[str], places: dict[KeyPath, str]) -> None:
    """Apply `a.b=c` settings in place. A slot given by its bare name becomes a mapping that can take options."""
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise BadInput(f"--set {setting}: expected KEY=VALUE, such as --set rounds=3.")
        try:
            parsed = parse_value(value)
        except yaml.YAMLError as error:
            raise BadInput(f"--set {setting}: '{value}' is not a YAML value.") from error
        at = _put(content, key.split("."), parsed, setting)
        for replaced in [known for known in places if known[: len(at)] == at]:
            del places[replaced]
        for end in range(1, len(at) + 1):
            places.setdefault(at[:end], f"--set {setting}")


def _put(content: Any, keys: Sequence[str], value: Any, setting: str) -> KeyPath:
    path: KeyPath = ()
    for position, key in enumerate(keys):
        last = position == len(keys) - 1
        at: str | int = key
        if isinstance(content, list):
            if not key.isdecimal() or int(key) >= len(content):
                raise BadInput(f"--set {setting}: '{key}' must be a position from 0 to {len(content) - 1}.")
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
            raise BadInput(f"--set {setting}: '{'.'.join(keys[: position + 1])}' is a plain value and has no keys.")
        content = content[at]
    return path


def explain(error: ValidationError, model: type[BaseModel], places: Mapping[KeyPath, str]) -> str:
    """Each problem on a line of its own: where, what is wrong, what would be right."""
    messages = []
    for at, message in _problems(error.errors(include_url=False), (), model):
        place = next(places[at[:end]] for end in range(len(at), -1, -1) if at[:end] in places)
        messages.append(f"{place}: {'.'.join(map(str, at)) or 'the file'}: {message}")
    return "\n".join(messages)


def _problems(errors: Sequence[Any], at: KeyPath, model: type[BaseModel]) -> list[tuple[KeyPath, str]]:
    found: list[tuple[KeyPath, str]] = []
    for item in errors:
        where = (*at, *item["loc"])
        context = item.get("ctx", {})
        if item["type"] == "part_options":
            found += _problems(context["errors"], where, context["model"])
        elif item["type"] == "extra_forbidden":
            known = _keys_beside(model, item["loc"])
            hint = nearest(str(where[-1]), known)
            listed = f"Known keys: {', '.join(known)}." if known else "It takes no keys."
            found.append((where, f"unknown key; {hint}{listed}"))
        elif item["type"] == "missing":
            found.append((where, "this key is missing."))
        elif item["type"] in ("unknown_name", "secret"):
            found.append((where, str(item["msg"])))
        else:
            got = repr(item["input"])
            shown = got if len(got) <= 60 else got[:57] + "..."
            said = item["msg"].removeprefix("Value error, ")
            found.append((where, f"{said[0].lower()}{said[1:]}, got {shown}."))
    return found


def _keys_beside(model: type[BaseModel], at: Sequence[Any]) -> list[str]:
    """Keys that are known where an unknown one was found."""
    for step in at[:-1]:
        field = model.model_fields.get(str(step))
        inner = _model_in(field.annotation) if field else None
        if inner is not None:
            model = inner
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        if (found := _model_in(argument)) is not None:
            return found
    return None


def differences(one: Any, other: Any, key: str = "") -> list[str]:
    """The keys that differ, as far down as both have the same ones."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [
            found
            for name in one
            for found in differences(one[name], other[name], f"{key}.{name}" if key else str(name))
        ]
    return [] if one == other else [key]
