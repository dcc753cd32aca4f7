"""Invariant 9: no trajectory text is reachable from anything that crosses the client boundary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedse
from assembled import assembled
from fedse.adapters.packing import pack
from fedse.engines.local import LocalEngine
from fedse.experiments.components import build_components
from fedse.experiments.options import Experiment
from fedse.types import ClientUpdate, RoundTask
from fedse.worlds.maze import Maze

SECRET = "patient 4711 has a rare disease"


class SecretMaze(Maze):
    """Says something private in every observation, and sometimes breaks while saying it."""

    def begin(self, task: str) -> str:
        if task == "3":
            raise RuntimeError(SECRET)
        return f"{SECRET} {super().begin(task)}"


def reachable(thing: Any) -> list[str]:
    """All text that can be reached from an object, through any container."""
    if isinstance(thing, str):
        return [thing]
    if isinstance(thing, bytes):
        return [thing.decode(errors="replace")]
    if isinstance(thing, np.ndarray):
        return [thing.tobytes().decode("latin-1")]
    if is_dataclass(thing) and not isinstance(thing, type):
        return [text for name in thing.__dataclass_fields__ for text in reachable(getattr(thing, name))]
    if isinstance(thing, dict):
        return [text for pair in thing.items() for item in pair for text in reachable(item)]
    if isinstance(thing, (list, tuple, set, frozenset)):
        return [text for item in thing for text in reachable(item)]
    return []


@pytest.fixture
def secret_experiment(table_experiment: Callable[..., Experiment]) -> Experiment:
    worlds = [{"name": f"{__name__}:SecretMaze", "mode": "original"}]
    return table_experiment(clients={"clinic": {"worlds": worlds}}, limits={"max_error_share": 1.0})


def test_updates_hold_no_text_of_a_trajectory(secret_experiment: Experiment, tmp_path: Path) -> None:
    parts = build_components(secret_experiment)
    federation = assembled(secret_experiment, tmp_path / "run", parts)
    engine = federation.engine
    assert isinstance(engine, LocalEngine)
    adapter = federation.initial_adapter()
    engine.send({"clinic": RoundTask(1, "train", pack(adapter), adapter.layout, adapter.config)})
    update = engine.poll()[0]
    assert update.vector is not None and update.counts["errors"] > 0
    kept = [step.observation for item in federation.clients[0].experience.buffer.read() for step in item.steps]
    assert any(SECRET in observation for observation in kept)
    known = {"clinic", "SecretMaze", f"{__name__}:SecretMaze", "validation", "RuntimeError", "table", ""}
    known |= {"train-0001", "float32"}
    known |= {*update.counts, *update.metrics}
    texts = [text for text in reachable(update) if "\x00" not in text]
    assert set(texts) <= known
    assert not any(SECRET in text for text in reachable(update))


def test_nothing_outside_the_clients_folders_holds_trajectory_text(
    secret_experiment: Experiment, tmp_path: Path
) -> None:
    result = fedse.run(secret_experiment, tmp_path)
    holding = [
        path.relative_to(result.folder).parts[0]
        for path in result.folder.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert set(holding) == {"clients"}


@pytest.mark.parametrize(
    "field",
    [
        {"counts": {SECRET: 1}},
        {"metrics": {SECRET: 1.0}},
        {"metrics": {"loss": SECRET}},
    ],
)
def test_an_update_refuses_sentences(field: dict[str, Any]) -> None:
    content: dict[str, Any] = {"counts": {}, "metrics": {}, **field}
    with pytest.raises((TypeError, ValueError)):
        ClientUpdate("clinic", 1, None, (), **content)
