"""Whether a class fits where it is to stand: it has the methods of a protocol, and can be made as its slot makes it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from fedse import protocols
from fedse.errors import UnknownName
from fedse.visible import short

BUILT_WITH: dict[str, tuple[str, ...]] = {
    "world": (),
    "model": (),
    "policy": ("model",),
    "start": (),
    "curriculum": ("site",),
    "rescue": ("site",),
    "judge": ("site",),
    "filter": (),
    "learner": ("model",),
    "mix": ("client", "seed"),
    "aggregator": (),
    "probe": ("site",),
    "tracker": ("run",),
    "engine": ("sites",),
}
"""What the `__init__` of a slot's plug-in is given, before its options."""


def duties(kind: str) -> list[str]:
    """Methods without which a class does not fit its slot: those of the protocol of the same name."""
    return list(_methods(_protocol(kind)))


def check_methods(kind: str, name: str, found: Any) -> None:
    """Raises `UnknownName` for a class that lacks a method, or has one that cannot be called as it will be."""
    if problem := _lacking(kind, found, _protocol(kind)):
        raise _misfit(kind, name, problem)


def check_made(kind: str, made: Any, protocol: Any = None) -> None:
    """The same of something that a program has made. `protocol` says what is needed where there is no such slot."""
    if isinstance(made, type):
        raise _misfit(kind, made.__name__, f"this is a class; give what it makes, `{made.__name__}(...)`.")
    for duty, declared in _methods(protocol or _protocol(kind)).items():
        own = getattr(made, duty, None)
        if not callable(own) or getattr(own, "__func__", None) is declared:
            problem = _no_method(kind, duty)
        else:
            problem = _unlike(own, declared, bound=True)
        if problem:
            raise _misfit(kind, type(made).__name__, problem)


@cache
def _lacking(kind: str, found: Any, protocol: Any) -> str:
    for duty, declared in _methods(protocol).items():
        own = inspect.getattr_static(found, duty, None)
        # Whoever inherits from a protocol has its empty methods.
        if own is declared or not hasattr(found, duty):
            return _no_method(kind, duty)
        if not callable(own) and not hasattr(own, "__get__"):
            return f"its '{duty}' is no method, and every {kind} needs one of this name."
        if inspect.isfunction(own) and (problem := _unlike(own, declared)):
            return problem
    for name in sorted(dir(found)):
        if getattr(inspect.getattr_static(found, name, None), "__isabstractmethod__", False) and _needed(found, name):
            return f"the class has no '{name}', which its base class leaves to it to define."
    return ""


def _no_method(kind: str, duty: str) -> str:
    return f"the class has no method '{duty}', which every {kind} needs."


def _needed(found: Any, name: str) -> bool:
    """Whether anything uses what a base class leaves open: who replaces all its users need not define it."""
    base = next(base for base in found.__mro__ if name in vars(base))
    users = [user for user, item in vars(base).items() if inspect.isfunction(item) and name in item.__code__.co_names]
    return not users or any(inspect.getattr_static(found, user) is vars(base)[user] for user in users)


def check_making(kind: str, name: str, found: type[Any], options: Mapping[str, Any]) -> None:
    """Raises `UnknownName` for a class whose `__init__` does not take what its slot gives and its options."""
    try:
        signature = inspect.signature(found, follow_wrapped=False)
    except ValueError:  # Some classes that are not written in Python have none.
        return
    try:
        signature.bind(*BUILT_WITH[kind], **options)
    except TypeError as error:
        given = ", ".join([*BUILT_WITH[kind], *(f"{option}=..." for option in options)])
        raise _misfit(
            kind, name, f"every {kind} is made with ({given}), which its `__init__` does not take ({error})."
        ) from error


def _protocol(kind: str) -> Any:
    return getattr(protocols, kind.capitalize())


def _methods(protocol: Any) -> dict[str, Any]:
    return {
        name: item for name, item in vars(protocol).items() if inspect.isfunction(item) and not name.startswith("_")
    }


def _unlike(own: Any, declared: Any, bound: bool = False) -> str:
    """What a method takes and what it will be given, where these do not go together."""
    given = list(inspect.signature(declared).parameters.values())[bound:]
    by_name = {item.name: None for item in given if item.kind is item.KEYWORD_ONLY}
    try:
        # What a decorator takes is not what the function behind it takes.
        taken = inspect.signature(own, follow_wrapped=False)
    except ValueError:  # Some that are not written in Python have none.
        return ""
    try:
        taken.bind(*(item.name for item in given if item.name not in by_name), **by_name)
    except TypeError:
        return (
            f"its method '{declared.__name__}' takes {_names(taken.parameters.values())}, and is given {_names(given)}."
        )
    return ""


def _names(parameters: Iterable[inspect.Parameter]) -> str:
    return str(inspect.Signature([item.replace(annotation=inspect.Parameter.empty) for item in parameters]))


def _misfit(kind: str, name: str, problem: str) -> UnknownName:
    return UnknownName(f"{kind} '{short(name)}': {problem}")
