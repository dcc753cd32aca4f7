"""Every recipe and every sweep can be run as it stands, and the regimes are what they say they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedse.experiments.options import Experiment, load_experiment
from fedse.plugins import build
from fedse.sweeps.grid import cells, read_sweep
from fedse.types import SPLITS
from fedse.worlds.answers import tasks_of

RECIPES = Path(__file__).parent.parent / "recipes"
REGIMES = ("s10", "s_new", "s_skin", "s_absent")


def recipe(name: str) -> Experiment:
    return load_experiment(RECIPES / f"{name}.yaml")


def worlds_of(experiment: Experiment) -> dict[str, Any]:
    """The only world of each client, with its part of the training tasks."""
    found = {}
    for name, options in experiment.clients.items():
        (part,) = options.worlds
        found[name] = build("world", part)
        found[name].training_part = options.training
    return found


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_recipe_is_an_experiment_of_its_own_name(path: Path) -> None:
    assert load_experiment(path).name == path.stem


@pytest.mark.parametrize("path", sorted((RECIPES / "sweeps").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_cell_of_a_sweep_can_be_run(path: Path, tmp_path: Path) -> None:
    sweep, base, places = read_sweep(path)
    assert cells(sweep, base, places, tmp_path)


@pytest.mark.parametrize("name", REGIMES)
def test_a_regime_differs_from_the_paper_protocol_in_its_sites_alone(name: str) -> None:
    ours, papers = recipe(name).identity(), recipe("smollm2").identity()
    different = {key for key in papers if ours[key] != papers[key]}
    assert different <= {"name", "clients", *(["start"] if name == "s10" else [])}


def test_two_sites_of_a_world_share_no_training_task() -> None:
    experiment = recipe("s10")
    worlds = worlds_of(experiment)
    assert len(worlds) == 10 and experiment.start.options == {"tasks": 40}
    for name in ("maze", "wordle", "textcraft", "babyai", "webshop"):
        assert experiment.clients[f"{name}_1"].worlds == experiment.clients[f"{name}_2"].worlds
        halves = [{task.id for task in tasks_of(worlds[f"{name}_{half}"], "train")} for half in (1, 2)]
        assert not halves[0] & halves[1] and min(map(len, halves)) > 200


def test_no_private_task_is_in_the_half_that_stands_for_public_data() -> None:
    private = recipe("epsilon_smollm2")
    halves = [f"clients.{name}.training.part=1" for name in private.clients]
    public = worlds_of(load_experiment(RECIPES / "epsilon_smollm2.yaml", halves))
    for name, world in worlds_of(private).items():
        known, ours = ({task.id for task in tasks_of(each, "train")} for each in (public[name], world))
        assert not known & ours and len(ours) > private.start.options["tasks"]


def test_pairs_of_one_world_are_those_of_the_ten_sites() -> None:
    sweep, base, _ = read_sweep(RECIPES / "sweeps/s10_within.yaml")
    paired = {name: options for name, change in sweep.variants.items() for name, options in change["clients"].items()}
    assert paired == base["clients"] and len(sweep.variants) == 5


def test_the_newcomer_comes_late_without_demonstrations_and_with_tasks_of_its_own() -> None:
    experiment = recipe("s_new")
    newcomer, known = experiment.clients["newcomer"], experiment.clients["textcraft"]
    assert (newcomer.joins, experiment.start_of("newcomer").name) == (11, "none")
    assert newcomer.worlds == known.worlds == recipe("smollm2").clients["textcraft"].worlds
    worlds = worlds_of(experiment)
    here, there = ({task.id for task in tasks_of(worlds[name], "train")} for name in ("newcomer", "textcraft"))
    assert here and not here & there


def test_five_skins_have_the_same_tasks_in_other_words() -> None:
    worlds = list(worlds_of(recipe("s_skin")).values())
    for split in SPLITS:
        task = tasks_of(worlds[0], split)[1].id
        seen = [(world.rules, world.reset(options={"task": task})[0]) for world in worlds]
        assert len(set(seen)) == 5
        assert len({world.offer(task).goal for world in worlds}) == 1
        assert all(tasks_of(world, split) == tasks_of(worlds[0], split) for world in worlds)


def test_the_absent_world_is_measured_and_not_learned() -> None:
    experiment = recipe("s_absent")
    assert [name for name, options in experiment.clients.items() if not options.learns] == ["textcraft"]
