"""`fedse play`, played through its standard input."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from fedse.cli.play import completed, play
from fedse.errors import BadInput
from fedse.worlds.maze import Maze
from fedse.worlds.wordle import Wordle


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    monkeypatch.setenv("COLUMNS", "120")
    app = typer.Typer()
    app.command()(play)
    return app


def expert_actions(world: Maze | Wordle, task: str) -> list[str]:
    world.reset(options={"task": task})
    actions = []
    over = False
    while not over:
        actions.append(world.expert()[1])
        over = world.step(actions[-1])[2]
    return actions


def test_a_maze_can_be_walked_with_first_letters(app: typer.Typer) -> None:
    actions = expert_actions(Maze(), "test-medium-4")
    letters = [action.split()[1][0] for action in actions]
    result = CliRunner().invoke(app, ["maze", "--task", "test-medium-4"], input="\n".join(letters))
    assert result.exit_code == 0, result.output
    assert f"You solved the task in {len(actions)} turns." in result.output
    assert "●" in result.output
    assert "★" in result.output
    assert "Actions: " in result.output


def test_the_form_that_the_rules_ask_for_is_understood_and_costs_no_turn(app: typer.Typer) -> None:
    actions = expert_actions(Maze(), "test-medium-4")
    typed = "\n".join(f"Thought: let me see.\nAction: {action}" for action in actions)
    result = CliRunner().invoke(app, ["maze", "--task", "test-medium-4"], input=typed)
    assert "not valid" not in result.output
    assert f"You solved the task in {len(actions)} turns." in result.output


def test_a_game_of_wordle_can_be_won_and_lost(app: typer.Typer) -> None:
    actions = expert_actions(Wordle(), "test-late-2")
    won = CliRunner().invoke(app, ["wordle", "--task", "test-late-2"], input="\n".join(actions))
    assert "You solved the task" in won.output
    assert f" {actions[-1][0].upper()} " in won.output
    lost = CliRunner().invoke(app, ["wordle", "--task", "test-late-2"], input="nonsense\n" * 6)
    assert lost.exit_code == 0
    assert lost.output.count("That action was not valid.") == 6
    assert "You did not solve the task." in lost.output
    assert f"The hidden word was {actions[-1]}" in lost.output


@pytest.mark.parametrize("typed", ["quit\n", "", "u\n"])
def test_leaving_is_clean(app: typer.Typer, typed: str) -> None:
    result = CliRunner().invoke(app, ["maze"], input=typed)
    assert result.exit_code == 0
    assert result.output.rstrip().endswith("You left the game.")


@pytest.mark.parametrize("world", ["maze", "wordle"])
@pytest.mark.parametrize("mode", ["clean", "original"])
def test_the_expert_can_be_watched(app: typer.Typer, world: str, mode: str) -> None:
    result = CliRunner().invoke(app, [world, "--expert", "--set", f"mode={mode}"])
    assert result.exit_code == 0
    assert "Thought: " in result.output
    assert "The expert solved the task" in result.output


def test_an_unknown_task_is_bad_input(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["maze", "--task", "nowhere"])
    assert isinstance(result.exception, BadInput)


def test_short_input_is_completed_only_where_it_is_clear() -> None:
    moves = ["move up", "move down", "move left"]
    assert [completed(typed, moves) for typed in ("u", "D", "left", "m", "x", "")] == [
        "move up", "move down", "move left", "m", "x", "",
    ]  # fmt: skip
    assert completed("x", ["p r o x y", "s h i r e"]) == "x"
