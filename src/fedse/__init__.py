"""Federated self-evolution of language-model agents.

`fedse.run(experiment)` runs a whole experiment; the parts of a round can be used by themselves from their modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Experiment", "__version__", "load_experiment", "run"]

if TYPE_CHECKING:
    from fedse.experiment import Experiment, load_experiment, run


def __getattr__(name: str) -> Any:
    # Importing fedse must stay instant: the experiment's machinery is loaded when it is first asked for.
    if name in __all__:
        from fedse import experiment

        return getattr(experiment, name)
    raise AttributeError(f"module 'fedse' has no attribute {name!r}")
