"""`fedse reference`: every key of an experiment file, generated from the classes that own them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedse.cli.console import say
from fedse.plugins import PluginOptions


def reference() -> None:
    """Print the reference of all keys as Markdown."""
    say(render(), nl=False)


def render() -> str:
    from fedse.experiments.client_options import ClientOptions
    from fedse.experiments.options import Experiment
    from fedse.plugins import options_of, resolve
    from fedse.plugins.shipped import KNOWN

    lines = [
        "# Every key of an experiment file",
        "",
        "Made by `fedse reference`; do not edit. A slot takes the name of a plug-in, or a mapping with `name` and its",
        "options; a class of your own is named `package.module:Class`. An interrupted run is resumed with the same",
        "file; only the keys marked (*) may have another value then, because they change nothing that is computed.",
        "",
        "## Experiment",
        "",
        *_table(Experiment),
        "",
        "### clients.NAME",
        "",
        *_table(ClientOptions),
        *_tables("clients.NAME.", ClientOptions),
    ]
    for name, field in Experiment.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel) and not _kind(field):
            lines += ["", f"### {name}", "", _first_line(field.annotation), "", *_table(field.annotation)]
            lines += _tables(f"{name}.", field.annotation)
    lines += _tables("", Experiment)
    for kind, plugins in KNOWN.items():
        lines += ["", f"## Slot: {kind}"]
        for name in plugins:
            options = options_of(kind, name)
            lines += ["", f"### {kind}: {name}", "", _first_line(resolve(kind, name)), ""]
            lines += _table(options) if options.model_fields else ["It has no options."]
            lines += _tables(f"{kind}.", options)
    return "\n".join(lines) + "\n"


def _first_line(owner: type) -> str:
    from fedse.plugins import summary

    return summary(owner)


def _table(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    if not prefix:
        yield "| key | type | default | meaning |"
        yield "| --- | --- | --- | --- |"
    for name, field in model.model_fields.items():
        inner = field.annotation
        if (
            prefix == ""
            and isinstance(inner, type)
            and issubclass(inner, BaseModel)
            and not _kind(field)
            and _nested(model)
        ):
            yield from _table(inner, f"{name}.")
            continue
        meaning = (field.description or "").replace("\n", " ").replace("|", "\\|")
        meaning += " (*)" if name in getattr(model, "operational", ()) else ""
        yield f"| `{prefix}{name}` | {_type(field)} | {_default(field)} | {meaning} |"


def _tables(prefix: str, model: type[BaseModel]) -> Iterator[str]:
    """Of options that are null by default, one for each."""
    for name, field in model.model_fields.items():
        for inner in get_args(field.annotation):
            if field.default is None and isinstance(inner, type) and issubclass(inner, PluginOptions):
                yield from ("", f"### {prefix}{name}", "", _first_line(inner), "", *_table(inner))


def _nested(model: type[BaseModel]) -> bool:
    """Options inside a plug-in's options are shown in its own table; the experiment's sections get tables of their own."""
    return model.__name__ != "Experiment"


def _kind(field: FieldInfo) -> str:
    from fedse.plugins import ChoiceOf

    return next((item.kind for item in field.metadata if isinstance(item, ChoiceOf)), "")


def _type(field: FieldInfo) -> str:
    if kind := _kind(field):
        return f"[{kind}](#slot-{kind})"
    return _name(field.annotation).replace("|", "\\|")


def _name(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        from fedse.plugins import ChoiceOf

        kinds = [item.kind for item in get_args(annotation)[1:] if isinstance(item, ChoiceOf)]
        return kinds[0] if kinds else _name(get_args(annotation)[0])
    if isinstance(annotation, type) and not get_args(annotation):
        return {"NoneType": "null", "str": "text", "bool": "true or false"}.get(
            annotation.__name__, annotation.__name__
        )
    arguments = get_args(annotation)
    if all(isinstance(argument, str | int) for argument in arguments):
        return " or ".join(f"`{argument}`" for argument in arguments)
    if get_origin(annotation) is list:
        return f"list of {_name(arguments[0])}"
    if get_origin(annotation) is dict:
        return f"{_name(arguments[1])} by name"
    return " or ".join(_name(argument) for argument in arguments)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return f"`{getattr(value, 'name', '')}`" if getattr(value, "name", "") else "see below"
    return "null" if value is None else f"`{value}`"
