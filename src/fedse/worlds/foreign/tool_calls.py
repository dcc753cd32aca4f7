"""Tools that an agent calls in JSON, one call per action: `{"tool": "search", "args": {"words": "red shoe"}}`.

A tool is told to the agent by its signature and description. What is wrong with a call is told in one sentence.
"""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError

from fedse.errors import BadInput
from fedse.plugins import nearest
from fedse.storage.strict_json import parse
from fedse.visible import short
from fedse.worlds.foreign.guesses import choice, chosen, few_values

CALL_FORM = '{"tool": "NAME", "args": {...}}'
FINISH = "finish"
"""Ends the episode. A model that needs no more tools says so in TRL by calling none; here it calls this."""


@dataclass(frozen=True)
class Tool:
    """Something that can be called with arguments by name."""

    name: str
    told: str
    """What the agent reads about it."""
    schema: Mapping[str, Any]
    """JSON schema of its arguments."""
    call: Callable[..., Any]
    arguments: Callable[[dict[str, Any]], dict[str, Any]]
    """The arguments as the tool takes them; a `ValueError` says what is wrong with them."""


class BadCall(Exception):
    """An action that is no call of a tool. Its sentence is told to the agent."""


def read_call(action: str, tools: Mapping[str, Tool]) -> tuple[Tool, dict[str, Any]]:
    """The tool that an action calls, and the arguments for it."""
    try:
        said = parse(action)
    except ValueError as error:
        raise BadCall(f"That is not a call. Write {CALL_FORM} in one line.") from error
    if not isinstance(said, dict) or not set(said) <= {"tool", "args"} or not isinstance(said.get("tool"), str):
        raise BadCall(f"A call has the form {CALL_FORM}.")
    if said["tool"] not in tools:
        named = short(said["tool"])
        raise BadCall(f"There is no tool '{named}': {nearest(named, tools)}Tools: {', '.join(tools)}.")
    tool, given = tools[said["tool"]], said.get("args", {})
    if not isinstance(given, dict):
        raise BadCall("`args` has to be an object with the arguments by name.")
    try:
        return tool, tool.arguments(given)
    except ValueError as error:
        raise BadCall(f"{tool.name}: {error}.") from error


def written(tool: str, **arguments: Any) -> str:
    """A call as an action.

    >>> written("open", door=2)
    '{"tool": "open", "args": {"door": 2}}'
    """
    return json.dumps({"tool": tool, "args": arguments})


def as_text(result: Any) -> str:
    """What a tool returned, for the agent to read."""
    if result is None:
        return "(no result)"
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)


def method_tool(method: Callable[..., Any]) -> Tool:
    """A method with a docstring and type hints as a tool."""
    name = method.__name__
    where = f"tools: the method '{name}' of {type(method.__self__).__name__}"  # type: ignore[attr-defined]
    description = inspect.getdoc(method)
    if not description:
        raise BadInput(f"{where} has no docstring; every public method is a tool and needs one.")
    signature = inspect.signature(method)
    hints = get_type_hints(method)
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise BadInput(f"{where} takes '{parameter}'; every argument of a tool needs a name of its own.")
        if parameter.name not in hints:
            raise BadInput(f"{where} has no type hint for '{parameter.name}'; a tool needs one for every argument.")
    names = list(signature.parameters)
    fields: dict[str, Any] = {
        # Under names of our own: an argument may be called `copy` or `json`, as methods of a model are.
        f"argument{place}": (
            hints[name],
            Field(alias=name, default=... if item.default is item.empty else item.default),
        )
        for place, (name, item) in enumerate(signature.parameters.items())
    }
    try:
        model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
        schema = model.model_json_schema()
    except PydanticUserError as error:
        raise BadInput(f"{where} has an argument that cannot be written in JSON: {short(error, 200)}.") from error

    def arguments(given: dict[str, Any]) -> dict[str, Any]:
        try:
            read = model.model_validate(given)
        except ValidationError as error:
            first = error.errors()[0]
            at = ".".join(str(part) for part in first["loc"])
            raise ValueError(f"'{at}': {first['msg']}") from error
        return {name: getattr(read, f"argument{names.index(name)}") for name in given}

    heading = f"{name}{_shown(signature, hints)}"
    return Tool(name, f"{heading}\n{textwrap.indent(description, '    ')}", schema, method, arguments)


def _shown(signature: inspect.Signature, hints: Mapping[str, Any]) -> str:
    """The signature with plain type hints, however they are written in the source."""
    plain = [item.replace(annotation=hints[item.name]) for item in signature.parameters.values()]
    return str(inspect.Signature(plain)).replace("typing.", "")


def schema_tool(name: str, description: str, schema: Mapping[str, Any], call: Callable[..., Any]) -> Tool:
    """A tool of somebody else's by its JSON schema. Whether arguments fit is the owner's affair, who tells the agent."""
    properties, required = schema.get("properties", {}), schema.get("required", ())
    arguments = ", ".join(
        f"{argument}: {about.get('type', 'any')}{'' if argument in required else ' (optional)'}"
        for argument, about in properties.items()
    )
    described = [
        f"{argument}: {about['description']}" for argument, about in properties.items() if "description" in about
    ]
    told = "\n".join(filter(None, [description, *described]))
    return Tool(name, f"{name}({arguments})\n{textwrap.indent(told, '    ')}".rstrip(), schema, call, dict)


def guess(tools: Sequence[Tool], draw: float) -> str | None:
    """Any call whose arguments have few values, chosen by a number in [0, 1); None where no tool has such."""
    candidates = [(tool.name, found) for tool in tools if (found := few_values(tool.schema)) is not None]
    if not candidates:
        return None
    (name, values), left = chosen(candidates, draw)
    return written(name, **choice(values, left))
