"""A plug-in that was chosen for a slot, with its options, and how it is made."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    model_serializer,
)
from pydantic_core import PydanticCustomError

from fedse.errors import UnknownName
from fedse.plugins.finding import BY_PATH, path_of, resolve
from fedse.plugins.fitting import check_making
from fedse.plugins.options import PluginOptions
from fedse.plugins.shipped import KNOWN
from fedse.visible import short

STORED = "stored"
"""Key of a validation's context: what is read was written by a run, complete, and is only looked at."""


def options_of(kind: str, name: str) -> type[PluginOptions]:
    """The options a plug-in accepts; one without `Options` accepts none."""
    found = getattr(resolve(kind, name), "Options", PluginOptions)
    if not (isinstance(found, type) and issubclass(found, PluginOptions)):
        # Others would take an unknown key for nothing, and not say so.
        raise UnknownName(
            f"{kind} '{short(name)}': its `Options` has to be a class that inherits from `PluginOptions`."
        )
    return found


class Choice(BaseModel):
    """A choice for one slot of the round: a plug-in's name and its options, complete with defaults.

    In YAML either the bare name (`aggregator: mean`) or a mapping with `name` (`learner: {name: imitation, epochs: 3}`).
    """

    model_config = ConfigDict(frozen=True)
    kind: str
    name: str
    options: dict[str, Any]
    foreign: bool = False
    """Read from a finished run and left as it stands there: its class need not be at hand to look at results."""

    @model_serializer
    def _flat(self) -> dict[str, Any]:
        return {"name": self.name, **self.options}

    def identity(self) -> dict[str, Any]:
        """See `PluginOptions.identity`."""
        return self._without("operational")

    def comparable(self) -> dict[str, Any]:
        """See `PluginOptions.comparable`."""
        return self._without("rounding")

    def _without(self, kind: str) -> dict[str, Any]:
        left_out: frozenset[str] = frozenset()
        # Of a class that is not at hand, every option counts.
        with suppress(Exception) if self.foreign else nullcontext():
            left_out = getattr(options_of(self.kind, self.name), kind, left_out)
        return {"name": self.name, **{key: item for key, item in self.options.items() if key not in left_out}}


class ChoiceOf:
    """Annotation that validates a `Choice` against the plug-ins of one kind.

    A mapping without `name` means the default plug-in with other options.
    """

    def __init__(self, kind: str, default: str = "") -> None:
        self.kind = kind
        self.default = default

    def default_choice(self, name: str) -> Choice:
        return Choice(kind=self.kind, name=name, options=options_of(self.kind, name)().model_dump())

    def _is_path(self, value: str) -> bool:
        looks_so = "/" in value or value.endswith((".json", ".jsonl"))
        return self.kind in BY_PATH and looks_so and ":" not in value

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.with_info_wrap_validator_function(self._validate, handler(source))

    def _validate(self, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        if isinstance(value, Choice):
            return value
        if isinstance(value, str | type):
            value = {"name": value}
        if isinstance(value, Mapping) and isinstance(value.get("name"), type):
            value = {**value, "name": path_of(value["name"])}
        if isinstance(value, Mapping) and isinstance(value.get("name"), str) and self._is_path(value["name"]):
            # `--set start.bad_records=skip` on a bare path leaves the path in the place of the name.
            if value.get("path", value["name"]) != value["name"]:
                raise PydanticCustomError(
                    "unknown_name",
                    "{message}",
                    {
                        "message": f"'{value['name']}' and '{value['path']}' are both given as the path: keep one of them."
                    },
                )
            value = {"path": value["name"], **value, "name": BY_PATH[self.kind]}
        if isinstance(value, Mapping) and "name" not in value and self.default:
            value = {"name": self.default, **value}
        if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
            raise PydanticCustomError(
                "part", "expected the name of a {kind}, a class, or a mapping with 'name'", {"kind": self.kind}
            )
        given = {key: item for key, item in value.items() if key != "name"}
        if (info.context or {}).get(STORED) and value["name"] not in KNOWN[self.kind]:
            return handler({"kind": self.kind, "name": value["name"], "options": given, "foreign": True})
        try:
            options = options_of(self.kind, value["name"]).model_validate(given).model_dump()
            check_making(self.kind, value["name"], resolve(self.kind, value["name"]), options)
        except UnknownName as error:
            raise PydanticCustomError("unknown_name", "{message}", {"message": str(error)}) from error
        except ValidationError as error:
            raise PydanticCustomError(
                "part_options",
                "bad options",
                {"errors": error.errors(include_url=False), "model": options_of(self.kind, value["name"])},
            ) from error
        return handler({"kind": self.kind, "name": value["name"], "options": options})


class ClientSlot(ChoiceOf):
    """A slot of `Client.work`: its plug-in is built with the client's `Site` and given to the client by the field's name."""


def capability(choice: Choice, name: str) -> bool:
    """What a plug-in's class says of itself, such as `in_process`; unsaid it is False."""
    return not choice.foreign and bool(getattr(resolve(choice.kind, choice.name), name, False))


def build(kind: str, choice: Choice, *needs: Any) -> Any:
    """Make the plug-in: what it needs from its surroundings first, its options as keywords."""
    return resolve(kind, choice.name)(*needs, **choice.options)
