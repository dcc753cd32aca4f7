from __future__ import annotations

import os
from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest

from fedse.errors import SwapFailed
from fedse.models.chat import ByteChat
from fedse.policies.scripted import ScriptedPolicy
from fedse.rollouts.player import Player
from fedse.starts.demonstrations import Demonstrations, demonstrate
from fedse.types import Episode, Outcome, Purpose, Sampling, Task, Trajectory
from fedse.worlds.maze import Maze
from fedse.worlds.wordle import Wordle
from fedse.worlds.world import World

CHAT = ByteChat()


def make_maze() -> Maze:
    return Maze(mode="original")


def episode(task: str, number: int = 0, make_world: Any = make_maze) -> Episode:
    return Episode("c", "maze", make_world, Task(task), Purpose.EXPLORE, 1, number, Sampling(number, 1.0))


def play(script: Any, episodes: list[Episode], slots: int = 8, context: int = 100_000) -> list[Trajectory]:
    return Player(ScriptedPolicy(CHAT, script, slots), CHAT, context).play(episodes, "digest")


def wander(turn: str, draw: float) -> str:
    return f"Thought: trying.\nAction: move {('up', 'down', 'left', 'right')[int(draw * 4)]}"


def test_trajectories_come_in_the_order_of_the_episodes_however_few_slots_there_are() -> None:
    episodes = [episode(str(task), number) for number, task in enumerate([3, 17, 18, 5, 9, 11, 24, 0])]
    wide, narrow = play(wander, episodes, slots=8), play(wander, episodes, slots=2)
    assert wide == narrow
    assert [item.task for item in wide] == [item.task.id for item in episodes]
    assert {item.outcome for item in wide} == {Outcome.SUCCESS, Outcome.FAILURE}


def test_token_ids_and_mask_are_the_conversation_as_it_was_held() -> None:
    [item] = play(wander, [episode("12", 1)])
    world = make_maze()
    ids = CHAT.opening(world.rules)
    mask = [False] * len(ids)
    for step in item.steps:
        turn, reply = CHAT.turn(step.observation), CHAT.reply(step.reply)
        ids += turn + reply
        mask += [False] * len(turn) + [True] * len(reply)
    assert list(item.token_ids) == ids
    assert list(item.train_mask) == mask


def test_an_unparsable_reply_is_an_invalid_action_told_by_the_world() -> None:
    task = Wordle().tasks("train")[0].id
    [item] = play(lambda turn, draw: "I would rather not.", [episode(task, make_world=Wordle)])
    assert item.outcome is Outcome.FAILURE
    assert [step.valid for step in item.steps] == [False] * Wordle().turn_limit
    assert item.steps[1].observation != item.steps[0].observation


def test_a_reply_cut_at_its_limit_is_closed_without_being_learned_from() -> None:
    class Endless(ScriptedPolicy):
        def ready(self) -> list[Any]:
            return [replace(reply, ids=reply.ids[:-1], ended=False) for reply in super().ready()]

    [item] = Player(Endless(CHAT, wander), CHAT, 100_000).play([episode("0", 3)], "digest")
    ends = [index for index, token in enumerate(item.token_ids) if token in CHAT.end_ids]
    assert not any(item.train_mask[index] for index in ends)


def test_an_episode_that_outgrows_the_context_is_cut_off_as_a_failure() -> None:
    opening = len(CHAT.opening(make_maze().rules))
    [item] = play(lambda turn, draw: "Thought: wait.\nAction: wait", [episode("0")], context=opening + 700)
    assert item.outcome is Outcome.FAILURE
    assert len(item.token_ids) <= opening + 700 and len(item.steps) < make_maze().turn_limit


class Broken(World):
    name, version, turn_limit, rules = "broken", 1, 3, "none"  # type: ignore[assignment]

    def begin(self, task: str) -> str:
        if task == "reset":
            raise OSError("no such world")
        return "begun"

    def act(self, action: str) -> Any:
        raise ZeroDivisionError


@pytest.mark.parametrize(("task", "kind"), [("reset", "OSError"), ("step", "ZeroDivisionError")])
def test_a_world_that_breaks_is_an_error_with_its_traceback(task: str, kind: str) -> None:
    [broken, fine] = play(wander, [episode(task, make_world=Broken), episode("18", 5)])
    assert (broken.outcome, broken.error, broken.score) == (Outcome.ERROR, kind, 0.0)
    assert kind in broken.detail
    assert fine.outcome is not Outcome.ERROR


def test_demonstrations_have_the_form_of_the_agents_own_episodes() -> None:
    world = make_maze()
    [shown] = [demonstrate("c", "maze", world, Task("12"), CHAT)]
    replies = iter([step.reply for step in shown.steps])
    [played] = play(lambda turn, draw: next(replies), [episode("12")])
    assert shown.outcome is played.outcome is Outcome.SUCCESS
    assert (shown.token_ids, shown.train_mask, shown.steps) == (played.token_ids, played.train_mask, played.steps)
    chosen = Demonstrations(4).trajectories("c", "maze", world, CHAT, 0)
    assert len({item.task for item in chosen}) == 4
    assert chosen == Demonstrations(4).trajectories("c", "maze", world, CHAT, 0)


@pytest.mark.slow
def test_worlds_in_worker_processes_give_the_same_trajectories() -> None:
    episodes = [episode(str(task), number) for number, task in enumerate([3, 17, 18, 5, 9, 11])]
    episodes += [episode("reset", 6, make_world=Broken), episode("step", 7, make_world=Broken)]
    here = play(wander, episodes)
    player = Player(ScriptedPolicy(CHAT, wander, slots=3), CHAT, 100_000, processes=2)
    there = player.play(episodes, "digest")
    again = player.play(episodes, "digest")
    player._worlds.close()
    for other in (there, again):
        assert [replace(item, detail="") for item in other] == [replace(item, detail="") for item in here]
    assert "ZeroDivisionError" in there[-1].detail


class Noting(Maze):
    """Notes when its episodes begin."""

    def begin(self, task: str) -> str:
        BEGUN.append(task)
        return super().begin(task)


BEGUN: list[str] = []


def make_noting() -> Noting:
    return Noting(mode="original")


def test_an_adapter_is_loaded_once_while_worlds_begin() -> None:
    BEGUN.clear()
    loaded: list[list[str]] = []
    wanted = [episode(task.id, number, make_noting) for number, task in enumerate(make_maze().tasks("train")[:3])]
    player = Player(ScriptedPolicy(CHAT, wander, slots=2), CHAT, 100_000)
    player.play(wanted, "digest", load=lambda: loaded.append(list(BEGUN)))
    assert loaded == [BEGUN[:2]] and len(BEGUN) == 3


@pytest.mark.parametrize("processes", [0, 1])
def test_an_adapter_that_cannot_be_loaded_leaves_no_answers_behind(processes: int) -> None:
    def refuse() -> None:
        raise SwapFailed("it does not fit")

    first, second = (episode(task.id) for task in make_maze().tasks("train")[:2])
    player = Player(ScriptedPolicy(CHAT, wander, slots=2), CHAT, 100_000, processes=processes)
    with pytest.raises(SwapFailed):
        player.play([first], "digest", load=refuse)
    assert player.play([second], "digest") == play(wander, [second])
    assert player._made == 1, "the world that had begun is there for others"
    player._worlds.close()


def test_an_interrupt_while_an_adapter_is_loaded_is_not_hidden_by_workers_that_heard_it_too() -> None:
    def interrupt() -> None:
        for worker in player._worlds._workers:  # type: ignore[union-attr]
            worker.terminate()
            worker.join()
        raise KeyboardInterrupt

    player = Player(ScriptedPolicy(CHAT, wander, slots=2), CHAT, 100_000, processes=1)
    with pytest.raises(KeyboardInterrupt):
        player.play([episode(task.id) for task in make_maze().tasks("train")[:2]], "digest", load=interrupt)


@pytest.mark.parametrize("processes", [0, 1])
def test_after_an_interrupt_nobody_takes_the_answers_that_were_left(processes: int) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    first, second = (episode(task.id) for task in make_maze().tasks("train")[:2])
    player = Player(ScriptedPolicy(CHAT, wander, slots=2), CHAT, 100_000, processes=processes)
    with pytest.raises(KeyboardInterrupt):
        player.play([first], "digest", load=interrupt)
    assert player.play([second], "digest") == play(wander, [second])
    player._worlds.close()


def test_a_worker_that_died_leaves_no_answers_of_others_behind() -> None:
    def refuse() -> None:
        worker = player._worlds._workers[0]  # type: ignore[union-attr]
        worker.kill()
        worker.join()
        raise SwapFailed("it does not fit")

    player = Player(ScriptedPolicy(CHAT, wander, slots=8), CHAT, 100_000, processes=2)
    homes: dict[int, list[Episode]] = {0: [], 1: []}
    for task in make_maze().tasks("train")[:12]:
        homes[crc32(task.id.encode()) % 2].append(episode(task.id))
    with pytest.raises(SwapFailed):
        player.play([homes[0][0], homes[1][0]], "digest", load=refuse)
    assert player.play(homes[1][1:3], "digest") == play(wander, homes[1][1:3])
    player._worlds.close()


def test_a_worker_that_died_does_not_hide_why_an_adapter_cannot_be_loaded() -> None:
    def refuse() -> None:
        for worker in player._worlds._workers:  # type: ignore[union-attr]
            worker.kill()
            worker.join()
        raise SwapFailed("it does not fit")

    player = Player(ScriptedPolicy(CHAT, wander, slots=2), CHAT, 100_000, processes=1)
    with pytest.raises(SwapFailed):
        player.play([episode(task.id) for task in make_maze().tasks("train")[:2]], "digest", load=refuse)


class Talkative(Maze):
    """Says more than a pipe holds."""

    def begin(self, task: str) -> str:
        return "word " * 30_000 + super().begin(task)


def make_talkative() -> Talkative:
    return Talkative(mode="original", turn_limit=2)


@pytest.mark.slow
def test_many_long_answers_do_not_block_the_worker_processes() -> None:
    episodes = [episode(str(number % 25), number, make_world=make_talkative) for number in range(60)]
    player = Player(ScriptedPolicy(CHAT, wander, slots=60), CHAT, 10_000_000, processes=1)
    there = player.play(episodes, "digest")
    player._worlds.close()
    assert there == play(wander, episodes, slots=60, context=10_000_000)


class Signed(Maze):
    """Says in which process it is."""

    def begin(self, task: str) -> str:
        return f"process {os.getpid()}\n{super().begin(task)}"


@pytest.mark.slow
def test_a_task_is_played_again_in_the_process_that_knows_it() -> None:
    tasks = Signed().tasks("train")[:24]
    player = Player(ScriptedPolicy(CHAT, wander, slots=5), CHAT, 100_000, processes=2)
    where: list[dict[str, str]] = []
    for chosen in (tasks, tasks[::-1]):
        played = player.play([episode(task.id, make_world=Signed) for task in chosen], "digest")
        where.append({item.task: item.steps[0].observation.partition("\n")[0] for item in played})
    player._worlds.close()
    assert where[0] == where[1]
    assert len(set(where[0].values())) == 2
