"""What belongs where a group of keys is expected, by an example."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo


def example_of(model: type[BaseModel], at: Sequence[Any]) -> str:
    """In words: what stands at a key of an experiment, or below it."""
    field, group, is_name = None, model, False
    for step in at:
        field = None if is_name else group.model_fields.get(str(step))
        # The keys of a mapping are names of the user's own.
        is_name = field is not None and get_origin(field.annotation) is dict
        group = (model_in(field.annotation) if field else None) or group
    value = field.examples[0] if field and field.examples else _first_key(group)
    written = (
        yaml.safe_dump({str(at[-1]): value}, default_flow_style=True, sort_keys=False, width=1000)
        .strip()[1:-1]
        .replace("'...'", "...")
    )
    meaning = re.split(r"[;:,.](?:\s|$)", field.description or "")[0] if field else ""
    return f"as in `{written}`" + (f" ({meaning[0].lower()}{meaning[1:]})" if meaning else "")


def model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        if (found := model_in(argument)) is not None:
            return found
    return None


def _first_key(group: type[BaseModel]) -> dict[str, Any]:
    """One that has a plain value to show, if there is one."""
    shown = {name: _shown(field) for name, field in group.model_fields.items()}
    name = next((name for name, value in shown.items() if value is not None), next(iter(shown)))
    return {name: "..." if shown[name] is None else shown[name]}


def _shown(field: FieldInfo) -> Any:
    if field.examples:
        return field.examples[0]
    return field.default if isinstance(field.default, int | float | str) else None
