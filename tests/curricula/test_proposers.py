"""Tasks that the agent proposes, by playing and in words: all of them are the world's, and nothing else is explored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from small_site import MadeUp

import fedse
from fedse.clients.guards import ENTERING, checked_plan
from fedse.clients.site import ExplorationOptions, Origin, Place, Site
from fedse.curricula.proposed import Proposed
from fedse.curricula.self_play import SelfPlay
from fedse.curricula.uniform import Uniform
from fedse.errors import BadInput
from fedse.experience.buffer import read_file
from fedse.experiments.options import Experiment
from fedse.models.chat import ByteChat
from fedse.plugins import resolve
from fedse.policies.scripted import ScriptedPolicy
from fedse.rollouts.player import Player
from fedse.types import Episode, Outcome, Play, Purpose, RoundTask, Trajectory
from fedse.worlds.made import base_of, is_made, made_id
from fedse.worlds.proposing import MakeProposing

Make = Callable[..., Experiment]
CHAT = ByteChat()
NOTHING: dict[str, object] = {}
TASK = RoundTask(2, "train", None, (), NOTHING)  # type: ignore[arg-type]


def site(name: str, tasks: int = 12, attempts: int = 1) -> Site:
    place = Place(name, resolve("world", name), Origin("c", name))
    return Site("c", {name: place}, CHAT, 0, Path("nowhere"), ExplorationOptions(tasks=tasks, attempts=attempts))


def planned(curriculum: Any, script: Callable[[str, float], str]) -> tuple[list[Trajectory], Sequence[Episode]]:
    """What was played to propose, and what is explored."""
    work = curriculum.plan(TASK, MadeUp())
    asked = next(work)
    assert isinstance(asked, Play) and asked.adapter is ENTERING
    assert {episode.purpose for episode in asked.episodes} == {Purpose.EVALUATE}, "nobody learns from proposing"
    played = Player(ScriptedPolicy(CHAT, script), CHAT, 100_000).play(asked.episodes, "digest")
    with pytest.raises(StopIteration) as ended:
        work.send(played)
    return played, checked_plan(curriculum.site, TASK, ended.value.value)


def ids(explored: Sequence[Episode]) -> list[str]:
    return list(dict.fromkeys(episode.task.id for episode in explored))


def walk(turn: str, draw: float) -> str:
    return f"Action: move {('up', 'down', 'left', 'right')[int(4 * draw)]}"


def test_what_the_agent_reached_is_explored_and_its_own_actions_solve_it() -> None:
    here = site("maze", tasks=12, attempts=2)
    played, explored = planned(SelfPlay(here, share=0.5, temperature=1.7), walk)
    assert len(played) == 6 and len(explored) == 24
    missed = {item.task: item for item in played if item.outcome is Outcome.FAILURE}
    own = [task for task in ids(explored) if is_made(task)]
    assert 3 <= len(own) == len({base_of(task) for task in own}) <= len(missed)
    world = here.places["maze"].world
    for task in own:
        world.reset(options={"task": task})
        for step in missed[base_of(task)].steps:
            *_, over, cut, info = world.step(step.action)
            if over or cut:
                break
        assert info["success"]
    uniform = [task.id for task in Uniform(here).chosen("maze", 2, MadeUp())]
    assert ids(explored) == [*own, *uniform[: 12 - len(own)]]


def test_the_temperature_is_that_of_proposing_alone() -> None:
    curriculum = SelfPlay(site("maze"), temperature=1.7)
    asked = curriculum.proposing("maze", 2)
    assert {episode.sampling.temperature for episode in asked} == {1.7}
    assert {episode.sampling.temperature for episode in planned(curriculum, walk)[1]} == {1.0}
    assert {episode.sampling.temperature for episode in SelfPlay(site("maze")).proposing("maze", 2)} == {1.0}


def way_back(turn: str, draw: float) -> str:
    """The first example with start and goal exchanged; now and then the example itself, or nonsense."""
    name = turn.partition("Other tasks here: ")[2].split(", ")[0]
    start, _, goal = name[:7].partition("-")
    nonsense = ("propose[no such thing]", "move up", "propose", "propose[]", f"propose[{start}-{start}]")
    said = f"propose[{start}-{goal}]" if draw < 0.2 else nonsense[int(25 * draw) - 5] if draw < 0.4 else ""
    return f"Thought: a new one\nAction: {said or f'Propose[ {goal}-{start} ]'}"


def test_names_that_the_world_accepts_are_explored_and_no_others() -> None:
    here = site("maze", tasks=30)
    played, explored = planned(Proposed(here, share=1.0, examples=2), way_back)
    swapped = [item for item in played if item.steps[0].action.startswith("Propose")]
    assert 10 < len(swapped) < len(played) == 30
    names = {item.task: item.steps[0].observation.partition("here: ")[2].split(", ")[0] for item in swapped}
    expected = {made_id(task, "-".join(reversed(name.split("-")))) for task, name in names.items()}
    own = [task for task in ids(explored) if is_made(task)]
    assert set(own) == expected and len(own) == len(swapped)
    uniform = [task.id for task in Uniform(here).chosen("maze", 2, MadeUp())]
    assert ids(explored) == [*own, *uniform[: 30 - len(own)]], "for what was not accepted, others are drawn"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["babyai", "textcraft", "webshop", "wordle"])
def test_a_name_is_accepted_if_the_world_makes_such_a_task_and_it_was_not_shown(name: str) -> None:
    place = site(name).places[name]
    world = MakeProposing(place.make, examples=2, seed=0)()
    accepted = refused = 0
    for task in place.tasks("train")[:4]:
        shown = {made.id for seed in (0, 1) if (made := place.world.vary(task.id, seed))}
        for seed in range(8):
            made = place.world.vary(task.id, seed)
            if made is not None:
                world.reset(options={"task": task.id})
                success = world.step(f"propose[{made.id.partition('~')[2]}]")[4]["success"]
                assert success is (made.id not in shown)
                accepted, refused = accepted + success, refused + (not success)
    assert accepted and refused


def test_an_example_is_no_proposal_and_what_is_shown_says_how_the_task_begins() -> None:
    here = site("maze")
    world = MakeProposing(here.places["maze"].make, examples=3, seed=5)()
    task = here.places["maze"].tasks("train")[0].id
    seen, _ = world.reset(options={"task": task})
    assert seen.startswith(here.places["maze"].make().reset(options={"task": task})[0])
    names = seen.partition("Other tasks here: ")[2].split(", ")
    assert len(names) == 3 and all(here.places["maze"].world.made(made_id(task, name)) for name in names)
    for action, taken in ((f"propose[{names[1]}]", False), ("propose[9.9-1.1]", False)):
        world.reset(options={"task": task})
        _, reward, over, _, info = world.step(action)
        assert (over, info["success"], reward) == (True, taken, float(taken))
    start, _, goal = names[0].partition("-")
    world.reset(options={"task": task})
    assert world.step(f"propose[{goal}-{start}]")[4]["success"], "the way back is as long, and new"


def keys(**changes: Any) -> dict[str, Any]:
    maze = {"name": "maze", "size": 4, "train_tasks": 30, "observation_length": "brief", "rules": "bare"}
    return {"clients": {"east": {"worlds": [maze]}}, "exploration": {"tasks": 6}, "start": "none", **changes}


@pytest.mark.slow
def test_a_run_that_stopped_explores_the_same_proposals(table_experiment: Make, tmp_path: Path) -> None:
    whole = fedse.run(table_experiment(**keys(curriculum="self_play")), tmp_path / "whole")
    for rounds in (1, 2):
        halting = fedse.run(table_experiment(**keys(curriculum="self_play", rounds=rounds)), tmp_path / "halting")
    assert halting.adapter.digest() == whole.adapter.digest()
    assert any(is_made(item.task) for item in read_file(whole.folder / "clients/east/buffer.sqlite"))
    assert all(item.purpose is Purpose.EXPLORE for item in read_file(whole.folder / "clients/east/buffer.sqlite"))


@pytest.mark.slow
def test_a_model_that_cannot_propose_explores_uniformly(table_experiment: Make, tmp_path: Path) -> None:
    silent = fedse.run(table_experiment(**keys(curriculum="proposed", rounds=1)), tmp_path / "silent")
    plain = fedse.run(table_experiment(**keys(rounds=1)), tmp_path / "plain")
    assert silent.adapter.digest() == plain.adapter.digest()
    for name in ("proposed", "self_play"):
        with pytest.raises(BadInput, match="curriculum: it needs tasks that worlds make"):
            fedse.run(table_experiment(curriculum=name), tmp_path / "refused")
