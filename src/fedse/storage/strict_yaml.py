"""YAML as fedse reads it, in every file it takes: each key once, 1e-3 is a number, and no file can fill the memory.

A few lines can stand for gigabytes, because an alias may name what already holds aliases. So what a document would grow to
is counted before any of it is made.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from fedse.errors import BadInput
from fedse.visible import short

KeyPath = tuple[str | int, ...]

MOST_BYTES = 4_000_000
MOST_VALUES = 200_000
"""Keys and values of a document, those that aliases stand for included: room for some thousand clients."""
DEEPEST = 40
LARGEST = 2**63
"""Whole numbers stay below it: no option means more, and one of 20,000 digits takes minutes to print."""


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML in which a key may stand once and 1e-3 is a number."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._values = 0
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._values += 1
        self._depth += 1
        if self._values > MOST_VALUES:
            raise _refused(f"it holds more than {MOST_VALUES:,} keys and values", self.get_mark())
        if self._depth > DEEPEST:
            raise _refused(f"it is nested more than {DEEPEST} deep", self.get_mark())
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def get_single_node(self) -> yaml.Node | None:
        root = super().get_single_node()
        if root is not None:
            _bound(root)
        return root

    def construct_yaml_str(self, node: yaml.ScalarNode) -> str:
        found = str(super().construct_yaml_str(node))
        try:
            found.encode()
        except UnicodeEncodeError as error:
            raise _refused(f"a text holds half a character ({error.reason})", node.start_mark) from error
        return found

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        if len(node.value) > 100 or abs(found := int(super().construct_yaml_int(node))) >= LARGEST:
            raise _refused(f"the number {short(node.value)} is too large", node.start_mark)
        return found

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        found = float(super().construct_yaml_float(node))
        if not math.isfinite(found):
            raise _refused(f"{short(node.value)} is not a finite number", node.start_mark)
        return found


_StrictLoader.add_constructor("tag:yaml.org,2002:str", _StrictLoader.construct_yaml_str)
_StrictLoader.add_constructor("tag:yaml.org,2002:int", _StrictLoader.construct_yaml_int)
_StrictLoader.add_constructor("tag:yaml.org,2002:float", _StrictLoader.construct_yaml_float)
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$"),
    list("-+0123456789."),
)
# The resolver above also matches plain integers; those are tried first.
for _letter in "-+0123456789.":
    _StrictLoader.yaml_implicit_resolvers[_letter].sort(key=lambda item: item[0] != "tag:yaml.org,2002:int")


def _refused(problem: str, mark: yaml.Mark | None) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _bound(root: yaml.Node) -> None:
    """Refuse what would grow too large, or never end, if its aliases were written out."""
    values, open_now = 0, [(root, 1)]
    while open_now:
        node, depth = open_now.pop()
        values += 1
        if values > MOST_VALUES:
            raise _refused(f"with its aliases it holds more than {MOST_VALUES:,} keys and values", node.start_mark)
        if depth > DEEPEST:
            raise _refused(f"a value contains itself, or is nested more than {DEEPEST} deep", node.start_mark)
        open_now += [(inner, depth + 1) for inner in _inside(node)]


def _inside(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        for pair in node.value:
            yield from pair
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


class _StrictDumper(yaml.SafeDumper):
    """Quotes every text that `_StrictLoader` would take for something else."""

    yaml_implicit_resolvers = _StrictLoader.yaml_implicit_resolvers


def to_yaml(content: Mapping[str, Any]) -> str:
    """The text from which `read_yaml` reads the same content."""
    return yaml.dump(content, Dumper=_StrictDumper, sort_keys=False, allow_unicode=True)


def in_line(content: Mapping[str, Any]) -> str:
    """
    >>> in_line({"rules": "bare", "levels": ["Pickup"]})
    '{rules: bare, levels: [Pickup]}'
    """
    return yaml.dump(content, Dumper=_StrictDumper, sort_keys=False, default_flow_style=True, width=math.inf).strip()


def parse_value(text: str) -> Any:
    """A value as it would stand in the file: `7`, `true`, `1e-3`, `[a, b]` or a word. Raises `YAMLError`."""
    loader = _StrictLoader(text)
    root = loader.get_single_node()
    return None if root is None else _made(loader, root)


def _made(loader: _StrictLoader, root: yaml.Node) -> Any:
    try:
        return loader.construct_document(root)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        # PyYAML lets these through for scalars that only look like a number or a date, and for keys that are lists.
        raise yaml.YAMLError(f"a value cannot be read: {error}") from error


def read_yaml(path: Path) -> tuple[dict[str, Any], dict[KeyPath, str]]:
    """The file's content and the place (file and line) where each key stands. The whole has the file alone."""
    text = _text_of(path)
    lines: dict[KeyPath, int] = {}
    try:
        loader = _StrictLoader(text)
        root = loader.get_single_node()
        if root is not None:
            _locate(root, (), lines, path)
        content = None if root is None else _made(loader, root)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadInput(f"{path}, line {line}: not valid YAML ({short(error.problem, 200)}).") from error
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: not valid YAML ({short(error, 200)}).") from error
    except RecursionError as error:
        raise BadInput(f"{path}: not usable, because a value contains itself or is nested too deeply.") from error
    if not isinstance(content, dict):
        raise BadInput(f"{path} must hold keys and values, such as `rounds: 20`.")
    return content, {at: f"{path}, line {line}" if at else str(path) for at, line in lines.items()}


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise BadInput(f"{path} is too large to be read: it has more than {MOST_BYTES:,} bytes.")
        return content.decode("utf-8")
    except FileNotFoundError as error:
        raise BadInput(f"there is no file {path}.") from error
    except IsADirectoryError as error:
        inside = path / "experiment.yaml"
        instead = f"; its experiment is `{inside}`" if inside.is_file() else ""
        raise BadInput(f"{path} is a folder, not a file{instead}.") from error
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read {path}: {error}.") from error


def _locate(node: yaml.Node, at: KeyPath, lines: dict[KeyPath, int], path: Path) -> None:
    lines[at] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise BadInput(f"{path}, line {key.start_mark.line + 1}: a key must be a word.")
            if key.value in seen:
                raise BadInput(
                    f"{path}, line {key.start_mark.line + 1}: the key '{short(key.value)}' is given here a second time."
                )
            seen.add(key.value)
            _locate(value, (*at, key.value), lines, path)
            lines[*at, key.value] = key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _locate(value, (*at, index), lines, path)
