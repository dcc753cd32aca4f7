"""Short name, dotted path or class -> class.

A plug-in is a class with an optional nested `Options` (pydantic) that lists what may be set in the experiment file.
Its module must import without torch, so that a file can be checked on a machine that only runs the server.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import traceback
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, suppress
from functools import cache
from importlib.metadata import entry_points
from itertools import count
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    model_serializer,
)
from pydantic_core import PydanticCustomError

from fedse import protocols
from fedse.errors import BadInput, CannotImport, FedseError, UnknownName
from fedse.shipped import KNOWN
from fedse.visible import short

STORED = "stored"
"""Key of a validation's context: what is read was written by a run, complete, and is only looked at."""

BY_PATH = {"model": "huggingface", "start": "recorded"}
"""Slots in which a bare path or hub name stands for this plug-in's `path`: `model: Qwen/Qwen3-1.7B`."""

ENTRY_POINTS = "fedse.plugins"
"""Installed packages add plug-ins in this group: `curriculum.mine = "my_package.mine:Mine"`."""
_INLINE: dict[str, type[Any]] = {}
"""Classes that were given themselves in place of a name, by the path that stands for them."""


@cache
def known(kind: str) -> dict[str, str]:
    """Short names of a slot's plug-ins and where their classes are. Those of fedse itself cannot be taken over."""
    added = {
        point.name.removeprefix(f"{kind}."): point.value
        for point in entry_points(group=ENTRY_POINTS)
        if point.name.startswith(f"{kind}.")
    }
    return {**added, **KNOWN[kind]}


def duties(kind: str) -> list[str]:
    """Methods without which a class does not fit its slot: those of the protocol of the same name."""
    protocol = getattr(protocols, kind.capitalize())
    return [name for name, item in vars(protocol).items() if inspect.isfunction(item) and not name.startswith("_")]


class PluginOptions(BaseModel):
    """What an experiment file may set: no unknown keys, no change after it was read."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        ser_json_inf_nan="constants",
    )
    operational: ClassVar[frozenset[str]] = frozenset()
    """Options that say where, how fast or how long, and change no bit of a result: a run may go on with other values."""
    server_only: ClassVar[frozenset[str]] = frozenset()
    """Options on which a client's work does not depend: hub and site need not agree on them."""
    rounding: ClassVar[frozenset[str]] = frozenset()
    """Options that change at most how sums are rounded: runs that differ in them alone are one method when compared."""

    def identity(self) -> dict[str, Any]:
        """What makes it the same experiment, so that a run may go on: everything that is not operational."""
        return {
            name: _part_of(getattr(self, name), "identity")
            for name in type(self).model_fields
            if name not in self.operational
        }

    def comparable(self) -> dict[str, Any]:
        """What makes it the same method, so that runs may be averaged: everything but roundings. Unlike an identity it has
        what an operator may change under way, such as a deadline, because that can decide whose work counts."""
        return {
            name: _part_of(getattr(self, name), "comparable")
            for name in type(self).model_fields
            if name not in self.rounding
        }


FilePath = Annotated[Path, Field(strict=False)]
"""An option that names a file: text in YAML, a path in Python."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a mistyped name, empty when nothing is near."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'? " if close else ""


def resolve(kind: str, name: str) -> type[Any]:
    """The class behind a short name or a dotted path such as `my_package.my_world:MyWorld`."""
    path = known(kind).get(name, name)
    if path in _INLINE:
        return _fitting(kind, name, _INLINE[path])
    module_name, _, class_name = path.partition(":")
    if not class_name or not all(piece.isidentifier() for piece in module_name.split(".")):
        here = kind in BY_PATH and "/" not in name and _exists(name)
        folder = f"for the folder of this name write './{name}'. " if here else ""
        raise UnknownName(
            f"unknown {kind} '{short(name)}': {folder or nearest(short(name), known(kind))}"
            f"Known: {', '.join(sorted(known(kind))) or 'none'}; a class of your own is given as 'package.module:Class'."
        )
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise _cannot_import(kind, name, error) from error
        raise UnknownName(
            f"{kind} '{short(name)}': there is no module '{short(error.name)}' on the Python path."
        ) from error
    except FedseError:
        raise
    except (Exception, SystemExit) as error:
        raise _cannot_import(kind, name, error) from error
    if not hasattr(module, class_name):
        raise UnknownName(f"{kind} '{short(name)}': module '{short(module_name)}' has no class '{short(class_name)}'.")
    found = getattr(module, class_name)
    if not isinstance(found, type):
        raise UnknownName(f"{kind} '{short(name)}': '{short(class_name)}' is not a class.")
    return _fitting(kind, name, found)


def _exists(name: str) -> bool:
    """False also for what no file can be called."""
    try:
        return Path(name).exists()
    except OSError:
        return False


def _cannot_import(kind: str, name: str, error: BaseException) -> CannotImport:
    said = short(f"{type(error).__name__}: {error}", 300)
    at = traceback.extract_tb(error.__traceback__)[-1]
    return CannotImport(
        f"{kind} '{short(name)}': its module fails when it is imported ({said}, at {at.filename}, line {at.lineno})."
    )


def _fitting(kind: str, name: str, found: type[Any]) -> type[Any]:
    if missing := [duty for duty in duties(kind) if not hasattr(found, duty)]:
        raise UnknownName(f"{kind} '{short(name)}': the class has no method '{missing[0]}', which every {kind} needs.")
    return found


def path_of(found: type[Any]) -> str:
    """The name that stands for a class. One that cannot be imported, from a notebook or a function, is known to this
    process only: another cannot go on with its run."""
    path = f"{found.__module__}:{found.__qualname__}"
    with suppress(ImportError, AttributeError):
        if getattr(importlib.import_module(found.__module__), found.__qualname__) is found:
            return path
    # Two classes of a loop or a cell that was run twice have the same path and are not the same.
    numbers = (path if number == 1 else f"{path}#{number}" for number in count(1))
    name = next(name for name in numbers if _INLINE.get(name, found) is found)
    _INLINE[name] = found
    return name


def is_inline(name: str) -> bool:
    """Whether the class behind a name is known to this process only."""
    return name in _INLINE


def options_of(kind: str, name: str) -> type[BaseModel]:
    """The options a plug-in accepts; one without `Options` accepts none."""
    found = getattr(resolve(kind, name), "Options", PluginOptions)
    assert issubclass(found, BaseModel)
    return found


def complaint(error: ValidationError, options: type[BaseModel]) -> str:
    """The first thing that is wrong with some options."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = options.model_fields
        return f"there is no option '{key}': {nearest(key, known)}Known: {', '.join(known) or 'none'}"
    message = first["msg"].removeprefix("Value error, ")
    return f"option '{key}': {message}" if key else message


Given = TypeVar("Given", bound=BaseModel)


def read_options(options: type[Given], owner: str, given: Mapping[str, Any]) -> Given:
    """The options of a plug-in that is made in Python; what is wrong with them is a sentence that begins with its owner."""
    try:
        return options(**given)
    except ValidationError as error:
        raise BadInput(f"{owner}: {complaint(error, options)}.") from error


def summary(found: type[Any]) -> str:
    """What a plug-in says of itself: the first line of its docstring."""
    said = (found.__doc__ or "").strip()
    return said.splitlines()[0] if said else "-"


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


def _part_of(value: Any, view: str) -> Any:
    if isinstance(value, PluginOptions | Choice):
        return getattr(value, view)()
    if isinstance(value, list):
        return [_part_of(item, view) for item in value]
    if isinstance(value, Mapping):
        return {key: _part_of(item, view) for key, item in value.items()}
    return value


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
                "part", "expected the name of a {kind} or a mapping with 'name'", {"kind": self.kind}
            )
        given = {key: item for key, item in value.items() if key != "name"}
        if (info.context or {}).get(STORED) and value["name"] not in KNOWN[self.kind]:
            return handler({"kind": self.kind, "name": value["name"], "options": given, "foreign": True})
        try:
            options = options_of(self.kind, value["name"]).model_validate(given)
        except UnknownName as error:
            raise PydanticCustomError("unknown_name", "{message}", {"message": str(error)}) from error
        except ValidationError as error:
            raise PydanticCustomError(
                "part_options",
                "bad options",
                {"errors": error.errors(include_url=False), "model": options_of(self.kind, value["name"])},
            ) from error
        return handler({"kind": self.kind, "name": value["name"], "options": options.model_dump()})


class ClientSlot(ChoiceOf):
    """A slot of `Client.work`: its plug-in is built with the client's `Site` and given to the client by the field's name."""


def capability(choice: Choice, name: str) -> bool:
    """What a plug-in's class says of itself, such as `in_process`; unsaid it is False."""
    return not choice.foreign and bool(getattr(resolve(choice.kind, choice.name), name, False))


def build(kind: str, choice: Choice, *needs: Any) -> Any:
    """Make the plug-in: what it needs from its surroundings first, its options as keywords."""
    return resolve(kind, choice.name)(*needs, **choice.options)
