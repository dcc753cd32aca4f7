"""`policy.legal_actions` from the world to the drawn token, with a random language model."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import fedse
from fedse.errors import BadInput, RunConflict
from fedse.experiments.options import Experiment
from fedse.plugins import resolve
from fedse.policies.transformer import TransformerPolicy
from fedse.rollouts.player import Player
from fedse.seeds import stream
from fedse.types import Episode, LegalActions, Outcome, Purpose, Sampling, Trajectory
from fedse.worlds.maze import Maze
from fedse.worlds.wordle import Wordle

BRIEF = {"rules": "brief", "observation_length": "brief"}


def make_maze() -> Maze:
    return Maze(**BRIEF, turn_limit=4)


def make_wordle() -> Wordle:
    return Wordle(**BRIEF, guesses=3)


def episodes(name: str, make_world: Any, count: int) -> list[Episode]:
    return [
        Episode(name, name, make_world, task, Purpose.EXPLORE, 1, 0, Sampling(stream(name, task.id), temperature))
        for task in make_world().tasks("train")[:count]
        for temperature in (0.0, 1.0)
    ]


def player(model: Any, legal: bool = True, reply_tokens: int = 40, processes: int = 0, slots: int = 8) -> Player:
    policy = TransformerPolicy(model, slots=slots, reply_tokens=reply_tokens, legal_actions=legal)
    policy.load(model.initial_adapter(0))
    return Player(policy, model.chat, model.context, processes=processes)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("maze", {"turn_limit": 4}),
        ("wordle", {"guesses": 3}),
        pytest.param("textcraft", {"turn_limit": 3}, marks=pytest.mark.slow),
        pytest.param("babyai", {"turn_limit": 3}, marks=pytest.mark.slow),
        pytest.param("webshop", {"turn_limit": 6}, marks=pytest.mark.slow),
        pytest.param("webshop", {"turn_limit": 4, "mode": "original"}, marks=pytest.mark.slow),
    ],
    ids=["maze", "wordle", "textcraft", "babyai", "webshop", "webshop original"],
)
def test_a_model_that_knows_nothing_acts_legally_in_every_world(name: str, options: dict[str, Any]) -> None:
    from fedse.models.tiny import Tiny

    model = Tiny(width=32, layers=1, context=4096, device="cpu", threads=1)
    kind = resolve("world", name)

    def make_world() -> Any:
        return kind(**({} if options.get("mode") == "original" else BRIEF), **options)

    plan = episodes(name, make_world, 3)
    free = player(model, legal=False, reply_tokens=120).play(plan, "adapter")
    legal = player(model, reply_tokens=160).play(plan, "adapter")
    assert all(not step.valid for item in free for step in item.steps)
    assert all(step.valid for item in legal for step in item.steps)
    assert all(item.outcome is not Outcome.ERROR for item in legal)
    assert len({step.action for item in legal for step in item.steps}) > 1


@pytest.mark.slow
def test_actions_are_drawn_by_the_models_probabilities_renormalised_at_every_branch(tiny: Any) -> None:
    """Chi-square of 2,000 actions against the exact probabilities of every action, worked out by plain passes."""
    actions = ("up", "upon", "down", "do", "a b", "a c", "no")
    policy = TransformerPolicy(tiny, slots=50, reply_tokens=13, legal_actions=True)
    policy.load(tiny.initial_adapter(0))
    opening, turn = tiny.chat.opening("rules"), tiny.chat.turn("go")
    spelled = {action: tiny.chat.reply(f"Action: {action}") for action in actions}
    first = len("Action:")

    def probability(action: str) -> float:
        ids, product = spelled[action], 1.0
        with torch.no_grad():
            logits = tiny.network(torch.tensor([[*opening, *turn, *ids]])).logits[0].double() / 0.7
        for index in range(first, len(ids)):
            others = {other[index] for other in spelled.values() if other[:index] == ids[:index]}
            row = logits[len(opening) + len(turn) + index - 1]
            product *= float(torch.softmax(row[sorted(others)], -1)[sorted(others).index(ids[index])])
        return product

    exact = {action: probability(action) for action in actions}
    assert sum(exact.values()) == pytest.approx(1)
    seen: Counter[str] = Counter()
    for batch in range(40):
        slots = [policy.open(opening, Sampling(1000 * batch + number, 0.7)) for number in range(50)]
        for slot in slots:
            policy.extend(slot, turn)
            policy.restrict(slot, LegalActions(actions))
        # As long as the longest action needs: no token is left for a thought.
        open_slots = set(slots)
        while open_slots:
            for reply in policy.ready():
                assert reply.ended
                action = tiny.chat.text(reply.ids).removeprefix("Action: ")
                assert math.exp(sum(reply.log_probs)) == pytest.approx(exact[action], rel=1e-3)
                seen[action] += 1
                policy.close(reply.slot)
                open_slots.remove(reply.slot)
    assert set(seen) <= set(actions)
    chi_square = sum((seen[action] - 2000 * share) ** 2 / (2000 * share) for action, share in exact.items())
    assert chi_square < 22.5  # 99.9 % point with 6 degrees of freedom


@pytest.mark.slow
def test_the_thought_is_the_one_of_a_free_reply_up_to_its_action_line(tiny: Any) -> None:
    free = player(tiny, legal=False).play(episodes("maze", make_maze, 4), "adapter")
    legal = player(tiny).play(episodes("maze", make_maze, 4), "adapter")
    for one, other in zip(free, legal, strict=True):
        said, kept = one.steps[0].reply, other.steps[0].reply.rpartition("\nAction:")[0]
        assert said.startswith(kept) and other.steps[0].observation == one.steps[0].observation
    assert any(item.steps[0].thought for item in legal)


@pytest.mark.slow
def test_batches_change_nothing(tiny: Any) -> None:
    plans = [episodes("maze", make_maze, 4), episodes("wordle", make_wordle, 3)]
    together = player(tiny).play([*plans[0], *plans[1]], "adapter")
    one_player = player(tiny)
    apart: list[Trajectory] = [item for plan in plans for item in one_player.play(plan, "adapter")]
    singly = [item for plan in plans for episode in plan for item in one_player.play([episode], "adapter")]
    assert together == apart == singly
    told = [[item.log_probs for item in played] for played in (together, apart, singly)]
    assert told[0] == told[1] == told[2] and [item.reshaped for item in together] == [True] * len(together)
    assert len({item.token_ids for item in together}) > len(together) // 2


@pytest.mark.slow
def test_worlds_in_worker_processes_tell_the_same_actions(tiny: Any) -> None:
    plan = [*episodes("maze", make_maze, 2), *episodes("wordle", make_wordle, 2)]
    assert player(tiny, processes=1).play(plan, "adapter") == player(tiny).play(plan, "adapter")


@pytest.mark.slow
def test_where_nobody_restricts_a_reply_the_option_changes_no_token(tiny: Any) -> None:
    class Silent(TransformerPolicy):
        def restrict(self, slot: int, actions: LegalActions) -> None:
            del slot, actions

    plan = [*episodes("maze", make_maze, 3), *episodes("wordle", make_wordle, 3)]
    silent = Silent(tiny, slots=8, reply_tokens=40, legal_actions=True)
    silent.load(tiny.initial_adapter(0))
    unrestricted = Player(silent, tiny.chat, tiny.context).play(plan, "adapter")
    assert unrestricted == player(tiny, legal=False).play(plan, "adapter")


class Unlisted(Maze):
    """It would tell, if somebody asked, that its actions cannot be listed."""

    asked = 0

    def legal_actions(self) -> Any:
        type(self).asked += 1


def make_unlisted() -> Unlisted:
    return Unlisted(**BRIEF, turn_limit=4)


def test_without_the_option_worlds_are_not_asked(tiny: Any) -> None:
    player(tiny, legal=False).play(episodes("unlisted", make_unlisted, 1), "adapter")
    assert Unlisted.asked == 0


def test_a_world_without_a_list_and_a_reply_too_short_are_refused_before_anything_is_written(
    tiny: Any, tiny_experiment: Experiment, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="the world 'unlisted' does not list"):
        player(tiny).play(episodes("unlisted", make_unlisted, 1), "adapter")
    client = {"worlds": [{"name": f"{__name__}:Unlisted", **BRIEF}]}
    experiment = restricted(tiny_experiment, clients={"here": client})
    with pytest.raises(BadInput, match="does not list what may be done"):
        fedse.run(experiment, tmp_path / "runs")
    short = restricted(tiny_experiment)
    short = restricted(short, policy={**short.policy.options, "reply_tokens": 10})
    with pytest.raises(BadInput, match="raise it, or leave"):
        fedse.run(short, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_reply_too_short_for_an_action_is_refused_and_a_full_context_ends_the_episode(tiny: Any) -> None:
    from fedse.models.tiny import Tiny

    with pytest.raises(BadInput, match=r"the line with the action 'move right' takes 19 tokens, and a reply has 18"):
        player(tiny, reply_tokens=18).play(episodes("maze", make_maze, 1), "adapter")
    fits = player(tiny, reply_tokens=19).play(episodes("maze", make_maze, 4), "adapter")
    assert all(step.valid for item in fits for step in item.steps)
    plan = episodes("maze", make_maze, 1)[:1]
    [whole] = player(tiny).play(plan, "adapter")
    small = Tiny(width=32, layers=2, context=len(whole.token_ids) - 30, device="cpu", threads=1)
    [cut] = player(small).play(plan, "adapter")
    assert cut.outcome is Outcome.FAILURE and 0 < len(cut.steps) < len(whole.steps)
    assert cut.steps == whole.steps[: len(cut.steps)] and cut.train_mask[-1]


def restricted(experiment: Experiment, **changes: Any) -> Experiment:
    content = experiment.model_dump(mode="json")
    content["policy"] |= {"legal_actions": True, "reply_tokens": 40}
    return Experiment(**{**content, **changes})


@pytest.mark.torture
def test_a_stopped_run_goes_on_to_the_same_adapter_and_says_that_actions_were_restricted(
    tiny_experiment: Experiment, tmp_path: Path
) -> None:
    whole = fedse.run(restricted(tiny_experiment), tmp_path / "whole")
    fedse.run(restricted(tiny_experiment, rounds=1), tmp_path / "stopped")
    resumed = fedse.run(restricted(tiny_experiment), tmp_path / "stopped")
    assert resumed.adapter.digest() == whole.adapter.digest()
    assert resumed.validation == whole.validation
    assert "legal_actions: true" in (whole.folder / "experiment.yaml").read_text()
    with pytest.raises(RunConflict, match=r"policy\.legal_actions"):
        fedse.run(restricted(tiny_experiment, policy={"slots": 8, "reply_tokens": 40}), tmp_path / "whole")
