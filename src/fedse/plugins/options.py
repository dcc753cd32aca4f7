"""What may be set of a plug-in, or of anything else in an experiment file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedse.errors import BadInput
from fedse.plugins.finding import nearest_or_all


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

    def refuse_without_effect(self, needs: Mapping[str, tuple[str, bool]]) -> None:
        """Raises for an option that is set and does nothing: `needs` has what each goes with, and whether that is there."""
        for name, (other, there) in needs.items():
            if not there and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"`{name}` does something with `{other}` only: leave one of them out, or both as they are"
                )


FilePath = Annotated[Path, Field(strict=False)]
"""An option that names a file: text in YAML, a path in Python."""


def complaint(error: ValidationError, options: type[BaseModel]) -> str:
    """The first thing that is wrong with some options."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = options.model_fields
        return f"there is no option '{key}': {nearest_or_all(key, known, 'Known:')}"
    message = first["msg"].removeprefix("Value error, ")
    return f"option '{key}': {message}" if key else message


Given = TypeVar("Given", bound=BaseModel)


def read_options(options: type[Given], owner: str, given: Mapping[str, Any]) -> Given:
    """The options of a plug-in that is made in Python; what is wrong with them is a sentence that begins with its owner."""
    try:
        return options(**given)
    except ValidationError as error:
        raise BadInput(f"{owner}: {complaint(error, options)}.") from error


def _part_of(value: Any, view: str) -> Any:
    if hasattr(value, view):
        return getattr(value, view)()
    if isinstance(value, list):
        return [_part_of(item, view) for item in value]
    if isinstance(value, Mapping):
        return {key: _part_of(item, view) for key, item in value.items()}
    return value
