"""Short name, dotted path or class -> class.

The module of a plug-in must import without torch, so that a file can be checked on a machine that only runs the server.
"""

from __future__ import annotations

import difflib
import importlib
import traceback
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points
from itertools import count
from pathlib import Path
from typing import Any

from fedse.errors import CannotImport, FedseError, UnknownName
from fedse.plugins.fitting import check_methods
from fedse.plugins.shipped import KNOWN, OTHER_NAMES
from fedse.visible import short

BY_PATH = {"model": "huggingface", "start": "recorded"}
"""Slots in which a bare path or hub name stands for this plug-in's `path`: `model: Qwen/Qwen3-1.7B`."""

ENTRY_POINTS = "fedse.plugins"
"""Installed packages add plug-ins in this group: `curriculum.mine = "my_package.mine:Mine"`."""
SHORTEST_TO_RESEMBLE = 5
"""Letters of a mistyped name from which on half of them may be wrong."""
SHORTEST_BEGINNING = 3
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


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a mistyped name, empty when nothing is near."""
    names = list(known)
    # Two letters in common say little about a short word, except where the other one begins with it.
    likeness = 0.5 if len(name) >= SHORTEST_TO_RESEMBLE else 0.6
    close = difflib.get_close_matches(name, names, n=1, cutoff=likeness)
    if not close and len(name) >= SHORTEST_BEGINNING:
        close = [other for other in names if other.startswith(name)][:1]
    return f"did you mean '{close[0]}'? " if close else ""


def nearest_or_all(name: str, known: Collection[str], title: str) -> str:
    """The hint, and what there is under a title; the title begins no sentence of its own where there is no hint."""
    hint = nearest(name, known)
    return f"{hint}{title if hint else title[0].lower() + title[1:]} {', '.join(known) or 'none'}"


def resolve(kind: str, name: str) -> type[Any]:
    """The class behind a short name or a dotted path such as `my_package.my_world:MyWorld`."""
    path = known(kind).get(name, name)
    if path in _INLINE:
        return _checked(kind, name, _INLINE[path])
    module_name, _, class_name = path.partition(":")
    if not class_name or not all(piece.isidentifier() for piece in module_name.split(".")):
        here = kind in BY_PATH and "/" not in name and _exists(name)
        folder = f"for the folder of this name write './{name}'. " if here else ""
        called = OTHER_NAMES.get(kind, {}).get(name.lower(), "")
        hint = folder or (f"{called}. " if called else nearest(short(name), known(kind)))
        raise UnknownName(
            f"unknown {kind} '{short(name)}'{f': {hint}' if hint else '. '}"
            f"Known: {', '.join(sorted(known(kind))) or 'none'}; a class of your own is given as 'package.module:Class'."
        )
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise _cannot_import(kind, name, error) from error
        raise UnknownName(
            f"{kind} '{short(name)}': there is no module '{short(error.name)}' in the current folder or on the Python path."
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
    return _checked(kind, name, found)


def _checked(kind: str, name: str, found: type[Any]) -> type[Any]:
    check_methods(kind, name, found)
    return found


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


def summary(found: type[Any]) -> str:
    """What a plug-in says of itself: the first line of its docstring."""
    said = (found.__doc__ or "").strip()
    return said.splitlines()[0] if said else "-"
