"""`fedse play`: play a world in the terminal, or watch its expert."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from fedse.cli.console import VisibleConsole
from fedse.cli.settings import Settings, WorldName
from fedse.cli.worlds import make_world
from fedse.rollouts.replies import parse
from fedse.worlds.world import World

_LISTED_ACTIONS = 24
"""Longer lists of legal actions are not shown."""


def play(
    world: WorldName,
    task: Annotated[str | None, typer.Option(help="Id of the task; without it, the first test task.")] = None,
    expert: Annotated[bool, typer.Option("--expert", help="Watch the expert instead of playing.")] = False,
    settings: Settings = None,
) -> None:
    """Play a task of a world in the terminal: type an action, or `Action: ...` as the rules ask for. `quit` leaves."""
    console = VisibleConsole(highlight=False)
    place = make_world(world, settings)
    chosen = task or place.tasks("test")[0].id
    observation, _ = place.reset(options={"task": chosen})
    console.print(Panel(Text(place.rules), title=f"{world}, task {chosen}", border_style="dim"))
    known: dict[str, None] = {}
    for turn in range(1, place.turn_limit + 1):
        _show(console, place, observation, f"turn {turn} of {place.turn_limit}")
        action = _expert_action(console, place) if expert else _typed_action(console, place, known)
        if action is None:
            console.print("You left the game.")
            return
        observation, _, terminated, truncated, info = place.step(action)
        if not info["valid"]:
            console.print("That action was not valid.", style="red")
        if terminated or truncated:
            break
    _show(console, place, observation, "the end")
    who = "The expert" if expert else "You"
    if info["success"]:
        console.print(f"{who} solved the task in {turn} turn{'s' * (turn > 1)}.", style="bold green")
    else:
        console.print(f"{who} did not solve the task.", style="bold red")


def _show(console: Console, world: World, observation: str, title: str) -> None:
    console.rule(title, style="dim")
    console.print(Text.from_ansi(world.drawing()))
    console.print()
    console.print(Text(observation, style="bold"))


def _expert_action(console: Console, world: World) -> str:
    thought, action = world.expert()
    if thought:
        console.print(Text(f"Thought: {thought}", style="italic"))
    console.print(Text(f"Action: {action}", style="cyan"))
    return action


def _typed_action(console: Console, world: World, known: dict[str, None]) -> str | None:
    """What the person types, completed to an action where that is clear; None when they leave."""
    legal = world.legal_actions() or []
    if 0 < len(legal) <= _LISTED_ACTIONS:
        console.print(Text(f"Actions: {', '.join(legal)}", style="dim"))
    known.update(dict.fromkeys(legal))
    try:
        typed = console.input("[cyan]> [/]").strip()
        while typed.lower().startswith(
            "thought:"
        ):  # The first of the two lines that rules ask for; thinking costs no turn.
            typed = console.input("[cyan]> [/]").strip()
    except (EOFError, KeyboardInterrupt):
        console.print()
        return None
    if typed.lower() in ("quit", "exit"):
        return None
    return completed(parse(typed).action or typed, list(known))


def completed(typed: str, actions: list[str]) -> str:
    """The one action that has a word beginning like this, or else the text as it was typed."""
    start = typed.lower()
    if start and start not in actions:
        matches = [
            action
            for action in actions
            if any(part.startswith(start) for part in (action, *action.split()) if len(part) > 1)
        ]
        if len(matches) == 1:
            return matches[0]
    return typed
