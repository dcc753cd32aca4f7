"""Federated self-evolution of language-model agents.

`fedse.run("experiment.yaml")` runs a whole experiment; the parts of a round can be used by themselves from their modules.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Adapter",
    "Episode",
    "Experiment",
    "Outcome",
    "Play",
    "PluginOptions",
    "Purpose",
    "Rule",
    "Site",
    "Step",
    "Task",
    "Trajectory",
    "Turn",
    "World",
    "WorldScore",
    "__version__",
    "load_experiment",
    "run",
]

if TYPE_CHECKING:
    from fedse.aggregators.rule import Rule
    from fedse.cli.call import run
    from fedse.clients.site import Site
    from fedse.experiments.options import Experiment, load_experiment
    from fedse.plugins import PluginOptions
    from fedse.types import Adapter, Episode, Outcome, Play, Purpose, Step, Task, Trajectory, WorldScore
    from fedse.worlds.world import Turn, World

_HOMES = {
    "fedse.aggregators.rule": ("Rule",),
    "fedse.cli.call": ("run",),
    "fedse.clients.site": ("Site",),
    "fedse.experiments.options": ("Experiment", "load_experiment"),
    "fedse.plugins": ("PluginOptions",),
    "fedse.types": ("Adapter", "Episode", "Outcome", "Play", "Purpose", "Step", "Task", "Trajectory", "WorldScore"),
    "fedse.worlds.world": ("Turn", "World"),
}


def __getattr__(name: str) -> Any:
    # Importing fedse must stay instant: what stands behind a name is loaded when it is first asked for.
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'fedse' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
