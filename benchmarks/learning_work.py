"""What `learning.py` learns with and from: models, random trajectories, and those of a recipe's experts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import yaml
from shapes import SHAPES, model_class

from fedse.models.huggingface import HuggingFace
from fedse.models.nano import Nano
from fedse.plugins import resolve
from fedse.starts.demonstrations import Demonstrations
from fedse.types import Outcome, Purpose, Trajectory


def model_of(name: str, device: str, threads: int | None, rank: int | None = None) -> Any:
    """With adapters of this rank, or of the model's own."""
    settings: dict[str, Any] = {"device": device, "threads": threads}
    settings |= {"lora": {"rank": rank}} if rank else {}
    if name == "nano":
        return Nano(**settings)
    if name in SHAPES:
        return model_class(name)(**settings)
    return HuggingFace(path=name, **settings)


def random_trajectories(
    count: int, shortest: int, longest: int, opening: int, vocabulary: int, seed: int = 0
) -> list[Trajectory]:
    """Observations of 60 to 120 tokens and replies of 20 to 50, as in the worlds."""
    random = np.random.default_rng(seed)
    start = random.integers(0, vocabulary, opening).tolist()
    made = []
    for length in random.integers(shortest, longest + 1, count):
        train = [False] * opening
        while len(train) < length:
            train += [False] * int(random.integers(60, 121)) + [True] * int(random.integers(20, 51))
        ids = start + random.integers(0, vocabulary, length - opening).tolist()
        made.append(
            Trajectory(
                client="client",
                world="world",
                task=str(len(made)),
                purpose=Purpose.EXPLORE,
                round=1,
                attempt=0,
                adapter="",
                steps=(),
                closing="",
                outcome=Outcome.SUCCESS,
                score=1.0,
                token_ids=tuple(ids),
                train_mask=(*train[: length - 1], True),
            )
        )
    return made


def trajectories_of_recipe(recipe: Path, count: int, model: Any) -> dict[str, list[Trajectory]]:
    found = {}
    for client, content in yaml.safe_load(recipe.read_text())["clients"].items():
        for world in content["worlds"]:
            options = {key: value for key, value in world.items() if key != "name"}
            built = resolve("world", world["name"])(**options)
            found[client] = Demonstrations(count).trajectories(client, world["name"], built, model.chat, 0)
    return found
