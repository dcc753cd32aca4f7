"""A model that was made for certain settings of its worlds gets them, and a run says where it does not."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import fedse
from fedse.experiments.options import Experiment, load_experiment
from fedse.experiments.world_settings import not_made_for
from fedse.models.card import ModelCard, WorldSettings
from fedse.models.nano import WORLDS
from fedse.models.table import Table
from fedse.storage.strict_yaml import read_yaml
from fedse.worlds.maze import Maze

DEMO = str(files("fedse.cli") / "demo.yaml")
RECIPES = Path(__file__).parents[1] / "recipes"


def one_site(world: Any, model: Any = "nano") -> Experiment:
    return Experiment(name="x", model=model, clients={"site": {"worlds": [world]}})


def options(world: Any, model: Any = "nano") -> dict[str, Any]:
    return one_site(world, model).clients["site"].worlds[0].options


@pytest.mark.parametrize(
    "path", [DEMO, *map(str, sorted(RECIPES.glob("nano*.yaml")))], ids=lambda path: Path(path).stem
)
def test_worlds_by_their_names_alone_are_those_of_the_demo_and_of_nanos_recipes(path: str) -> None:
    content, _ = read_yaml(Path(path))
    written = load_experiment(path)
    bare = Experiment(**{**content, "clients": {name: {"worlds": [name]} for name in content["clients"]}})
    assert set(written.clients) == set(WORLDS)
    assert bare.digest() == written.digest()
    assert not_made_for(bare) == []


def test_what_a_file_says_is_kept() -> None:
    short = {"name": "maze", "rules": "bare", "observation_length": "brief"}
    assert options(short) == Maze.Options(rules="bare", observation_length="brief").model_dump(), "nothing is added"
    assert options({"name": "maze", "mode": "original"}) == Maze.Options(mode="original").model_dump()
    other_tasks = options({"name": "maze", "turn_limit": 8})
    assert (other_tasks["rules"], other_tasks["turn_limit"], other_tasks["shortest"]) == ("bare", 8, 2)
    elsewhere = options({"name": "maze", "train_tasks": 50, "pool": 3})
    assert elsewhere == {**options("maze"), "train_tasks": 50, "pool": 3}


def test_the_way_a_world_or_a_model_is_named_makes_no_difference() -> None:
    assert options("fedse.worlds.maze:Maze") == options(Maze) == options({"name": Maze}) == options("maze")
    assert (
        options("maze", {"name": "nano", "threads": 1}) == options("maze", "fedse.models.nano:Nano") == options("maze")
    )


@pytest.mark.parametrize("model", ["tiny", "Qwen/Qwen2.5-0.5B-Instruct", {"name": "table"}])
def test_other_models_change_no_world(model: Any) -> None:
    experiment = one_site("maze", model)
    assert experiment.clients["site"].worlds[0].options == Maze.Options().model_dump()
    assert not_made_for(experiment) == []


def test_a_stored_experiment_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(one_site({"name": "maze", "rules": "full"}).to_yaml())
    assert load_experiment(file) == one_site({"name": "maze", "rules": "full"})


def test_what_the_model_will_not_understand_is_told_with_its_settings() -> None:
    (told,) = not_made_for(one_site({"name": "maze", "rules": "full", "observation_length": "brief"}))
    assert (
        "site, maze: the model nano was made for {rules: bare}, and this experiment has {rules: full}" in told.message
    )
    (told,) = not_made_for(one_site("wordle"))
    assert "was not made for this world" in told.message and "babyai, maze, textcraft, webshop" in told.message
    assert told.details == {"client": "site", "world": "wordle"}


class Picky(Table):
    """A table that was made for mazes of another kind."""

    card = ModelCard(worlds={"maze": WorldSettings({"mode": "clean", "directions": "compass"}, {"size": 3})})


def test_a_run_tells_it_before_its_first_round(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    heard: list[Any] = []

    class Hearing:
        def record(self, event: Any) -> None:
            heard.append(event)

    experiment = table_experiment(model=Picky, rounds=1)
    fedse.run(experiment, tmp_path, trackers=[Hearing()])
    kinds = [getattr(event, "kind", event.name) for event in heard]
    assert kinds.count("not_made_for") == 2, "one for each of two sites"
    assert max(at for at, kind in enumerate(kinds) if kind == "not_made_for") < kinds.index("round_started")


def test_a_model_of_ones_own_says_it_in_the_same_way() -> None:
    assert options("maze", Picky) == Maze.Options(directions="compass", size=3).model_dump()


def test_a_site_that_names_its_own_worlds_gets_them_too(tmp_path: Path) -> None:
    from fedse.apps.site_file import load_site

    (tmp_path / "experiment.yaml").write_text("name: x\nmodel: nano\nclients:\n  site:\n  other:\n")
    (tmp_path / "site.yaml").write_text(
        "name: site\nhub: localhost:9\ninsecure: true\nexperiment: experiment.yaml\nworlds: [maze]\n"
    )
    (chosen,) = load_site(tmp_path / "site.yaml").experiment.clients["site"].worlds
    assert chosen.options == options("maze")
