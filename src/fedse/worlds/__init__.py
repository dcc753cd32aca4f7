"""The worlds agents work in: Gymnasium environments whose observations and actions are text."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["as_tools", "task_rows"]

if TYPE_CHECKING:
    from fedse.worlds.tool_shape import as_tools, task_rows


def __getattr__(name: str) -> Any:
    # A world is imported by the path of its module; that must not load what only other trainers need.
    if name in __all__:
        return getattr(import_module("fedse.worlds.tool_shape"), name)
    raise AttributeError(f"module 'fedse.worlds' has no attribute {name!r}")
