"""Everything the Maze world says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedse.worlds.maze.maps import Cell, Layout, double_t, from_picture
from fedse.worlds.reply_form import RulesLength, asked_for, asked_for_briefly


@dataclass(frozen=True)
class Wording:
    """The words for the four directions: up, down, left, right."""

    verb: str
    ways: tuple[str, ...]
    sides: tuple[str, ...]

    @property
    def actions(self) -> list[str]:
        return [f"{self.verb} {way}" for way in self.ways]


WORDINGS = {
    "moves": Wording(
        "move", ("up", "down", "left", "right"), ("above you", "below you", "to your left", "to your right")
    ),
    "compass": Wording(
        "go", ("north", "south", "west", "east"), ("to the north", "to the south", "to the west", "to the east")
    ),
}


@dataclass(frozen=True)
class Narrator:
    """The texts for one choice of options."""

    original: bool
    wording: Wording
    rules_length: RulesLength
    view_length: Literal["full", "brief"]
    sees_goal: bool
    turn_limit: int

    @property
    def success(self) -> str:
        return "Success" if self.original else "You reached the goal."

    @property
    def blocked(self) -> str:
        return "Wall." if self.view_length == "brief" else "There is a wall in the way."

    @property
    def not_an_action(self) -> str:
        if self.view_length == "brief":
            return "Not an action."
        return f"That is not an action. Use one of: {', '.join(self.wording.actions)}."

    def view(self, layout: Layout, cell: Cell, goal: Cell) -> str:
        """What is seen from a cell."""
        neighbours = layout.neighbours[cell]
        if self.view_length == "brief":
            ways = ", ".join([way for way, other in zip(self.wording.ways, neighbours, strict=True) if other])
            if not self.sees_goal:
                return f"open: {ways}"
            return f"goal {goal[0]},{goal[1]}; you {cell[0]},{cell[1]}; open: {ways}"
        # Right, left, above, below: the order of the original.
        walls = [self.wording.sides[way] for way in (3, 2, 0, 1) if neighbours[way] is None]
        if not walls:
            nearby = "There are no walls near you."
        elif len(walls) == 1:
            nearby = f"There is a wall {walls[0]}."
        else:
            nearby = f"There are walls {', '.join(walls)}."
        if not self.sees_goal:
            return nearby
        place, here = self._position(goal), self._position(cell)
        return f"The goal is at position {place}. Your current position is at position {here}. {nearby}"

    def _position(self, cell: Cell) -> str:
        if self.original:
            # The original puts a blank between the digits of a number.
            return f"{' '.join(str(cell[0]))}, {' '.join(str(cell[1]))}"
        return f"{cell[0]}, {cell[1]}"

    def thought(self, best: int, towards: Sequence[int], open_ways: Sequence[int], back: int | None) -> str:
        """Why to take the way `best`, told from what is known: the ways to the goal, the open ones, the way back."""
        if self.rules_length == "bare":
            return ""
        ways, brief = self.wording.ways, self.rules_length == "brief"
        move, step = ways[best], self.wording.actions[best]
        if not self.sees_goal:
            return f"{move.capitalize()} is open." if brief else f"The way {move} is open, so I follow it."
        goal = " and ".join(ways[way] for way in towards)
        if best in towards:
            if brief:
                return f"Goal is {goal}, {move} is open."
            return f"The goal is further {goal}. The way {move} is open, so I {step}."
        promising = set(towards) & set(open_ways)
        if not promising:
            if brief:
                return f"Goal is {goal} but walled, go round by {move}."
            return f"The goal is further {goal}, but there is a wall, so I go round it and {step}."
        if promising == {back}:
            if brief:
                return f"Goal is {goal}, but I came from there, go on {move}."
            return f"The goal is further {goal}, but I came from there, so I {step}."
        if brief:
            return f"Goal is {goal}, but the way round is {move}."
        return f"The goal is further {goal}, but the way there leads round, so I {step}."

    # Hints

    advice = (
        "Do not walk back and forth. Where a wall is in the way, walk round it, even if that leads away from the goal."
    )

    def aim(self, offset: Cell, steps: int) -> str:
        """Where the goal is from here, and how many steps a shortest way takes."""
        parts, count = [], "1 step" if steps == 1 else f"{steps} steps"
        for distance, (back, forth) in zip(offset, ((0, 1), (2, 3)), strict=True):
            if distance:
                way = self.wording.ways[forth if distance > 0 else back]
                parts.append(f"{abs(distance)} {'cell' if abs(distance) == 1 else 'cells'} {way}")
        return f"The goal is {' and '.join(parts)} from here. The shortest way takes {count}."

    # Rules

    def rules(self) -> str:
        return self._full_rules() if self.rules_length == "full" else self._brief_rules()

    def _brief_rules(self) -> str:
        _, down, _, right = self.wording.ways
        around = "open ways" if self.view_length == "brief" else "walls around you"
        if self.sees_goal:
            seen = f"the goal, your place (row, column) and the {around}"
            axes = f" {down.capitalize()} adds 1 to the row, {right} adds 1 to the column."
        else:
            seen, axes = f"the {around}", ""
        return (
            f"You walk through a maze to its goal. Each turn you see {seen}.{axes}\n"
            f"Actions: {', '.join(self.wording.actions)}.\n"
            f"Answer with one action per turn, in {asked_for_briefly(self.rules_length, 'action')}"
        )

    def _full_rules(self) -> str:
        up, down, left, right = self.wording.ways
        if self.sees_goal:
            seen = "where the goal is, where you are, and which walls are next to you"
            axes = (
                f"A position is a row and a column: going {down} adds 1 to the row and {up} takes 1 away, "
                f"going {right} adds 1 to the column and {left} takes 1 away.\n"
            )
        else:
            seen, axes = "which walls are next to you; neither your position nor the goal is shown", ""
        return (
            "You are an expert at finding the way through mazes. Reach the goal in as few steps as you can.\n"
            f"Every turn you are told {seen}.\n{axes}"
            f"The possible actions are: {', '.join(self.wording.actions)}. A step against a wall leaves you where you "
            "are and costs a turn, and so does anything that is not an action. "
            f"You have {self.turn_limit} turns.\n\n"
            f"A game may go like this:\n{self._worked_game()}\n\n"
            "Give exactly one action per turn, in this form:\n"
            + asked_for("what you conclude from what you see", "one of the actions")
        )

    def _worked_game(self) -> str:
        """A short game with one step against a wall, in the original's own maze or in one that no task uses."""
        layout = double_t() if self.original else from_picture("#####", "#   #", "# # #", "#####")
        cell, goal = ((5, 4), (8, 6)) if self.original else ((2, 1), (2, 3))
        moves = (3, 0, 3, 1, 1, 1) if self.original else (0, 0, 3, 3, 1)
        lines, remark = [], ""
        for way in moves:
            lines += [f"environment: {remark}{self.view(layout, cell, goal)}", f"action: {self.wording.actions[way]}"]
            target = layout.neighbours[cell][way]
            remark = "" if target or self.original else f"{self.blocked} "
            cell = target or cell
        return "\n".join([*lines, f"environment: {self.success}"])
