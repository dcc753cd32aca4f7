"""How an agent's line becomes an action of an OpenEnv environment: a field, a whole JSON object, or a call of a tool."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from fedse.errors import BadInput
from fedse.storage.strict_json import parse
from fedse.worlds.foreign.guesses import choice, few_values
from fedse.worlds.foreign.openenv_wire import BadAction
from fedse.worlds.foreign.tool_calls import CALL_FORM, BadCall, Tool, guess, read_call, schema_tool

NO_FIELDS = ("metadata", "done", "reward")
"""Of every action and observation; nothing that an agent would fill in or read."""


class Actions(Protocol):
    """What the world asks of a way to write actions."""

    def form(self) -> str:
        """How an action is written, for the rules."""

    def meant(self, action: str) -> dict[str, Any]:
        """The action as the server takes it; a `BadAction` says what is wrong with it."""

    def guessed(self, draw: float) -> str | None:
        """An action that one who does not think might try; None where nothing can be guessed."""


class FieldActions:
    """The agent's line is one field of the action; where several are required, it is the whole action as JSON."""

    def __init__(self, schema: Mapping[str, Any], field: str, given: Mapping[str, Any]) -> None:
        idle = {*NO_FIELDS, *given}
        properties = {name: item for name, item in schema.get("properties", {}).items() if name not in idle}
        required = [name for name in schema.get("required", ()) if name not in idle]
        if field and field not in properties:
            raise BadInput(f"openenv: an action has no field '{field}'; its fields: {', '.join(properties) or 'none'}.")
        self._schema = {**schema, "properties": properties, "required": required}
        self._field = field or (required[0] if len(required) == 1 else "")
        self._values = few_values(self._schema) or {}

    def form(self) -> str:
        if self._field:
            return f"An action is one line that gives the {self._about(self._field)}"
        fields = [f"- {self._about(name)}" for name in self._schema["properties"]]
        return "\n".join(["An action is a JSON object on one line. Its fields:", *fields])

    def _about(self, name: str) -> str:
        item, few = self._schema["properties"][name], self._values.get(name, ())
        kind = f" ({item['type']})" if "type" in item else ""
        listed = f" One of: {', '.join(map(str, few))}." if few and not isinstance(few, range) else ""
        return f"{name}{kind}: {item.get('description', '')}{listed}".rstrip(": ")

    def meant(self, action: str) -> dict[str, Any]:
        # The type of a field is the server's affair, but a list or a number is not written as a text.
        text = self._schema["properties"].get(self._field, {}).get("type") == "string"
        try:
            said = action if text else parse(action)
        except ValueError as error:
            if self._field:
                return {self._field: action}
            raise BadAction("it is not JSON") from error
        if self._field:
            return {self._field: said}
        if not isinstance(said, dict):
            raise BadAction("it is not a JSON object")
        return said

    def guessed(self, draw: float) -> str | None:
        if not self._values or (self._field and self._field not in self._values):
            return None
        found = choice(self._values, draw)
        value = found[self._field] if self._field else found
        return value if isinstance(value, str) else json.dumps(value)


class ToolActions:
    """The agent calls tools: environments that speak MCP inside OpenEnv's protocol."""

    def __init__(self, listed: Sequence[Any]) -> None:
        found = [item for item in listed if isinstance(item, dict) and isinstance(item.get("name"), str)]
        self._tools: dict[str, Tool] = {
            item["name"]: schema_tool(item["name"], item.get("description") or "", item.get("input_schema") or {}, dict)
            for item in found
        }

    def form(self) -> str:
        listed = "\n".join(tool.told for tool in self._tools.values())
        return f"Tools:\n{listed}\nAn action is one call of a tool, in JSON on one line: {CALL_FORM}"

    def meant(self, action: str) -> dict[str, Any]:
        try:
            tool, arguments = read_call(action, self._tools)
        except BadCall as error:
            raise BadAction(str(error).rstrip(".")) from error
        return {"type": "call_tool", "tool_name": tool.name, "arguments": arguments}

    def guessed(self, draw: float) -> str | None:
        return guess(list(self._tools.values()), draw)


def calls_tools(schema: Mapping[str, Any]) -> bool:
    """Whether an action is a call of a tool."""
    return {"tool_name", "arguments"} <= set(schema.get("properties", {}))


def tool_answer(observation: Mapping[str, Any]) -> tuple[str, bool, str]:
    """What a tool said, whether the call was in order, and what broke if it was not the agent's fault."""
    error = observation.get("error")
    if isinstance(error, dict):
        said = str(error.get("message") or error.get("error_type"))
        return said, False, said if error.get("error_type") in ("transport_error", "timeout") else ""
    result = observation.get("result")
    if isinstance(result, dict) and isinstance(result.get("content"), list):
        blocks = [item for item in result["content"] if isinstance(item, dict)]
        texts = [str(item["text"] if "text" in item else f"({item.get('type')})") for item in blocks]
        return "\n".join(texts), not result.get("is_error"), ""
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False), True, ""
