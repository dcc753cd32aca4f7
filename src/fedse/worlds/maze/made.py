"""Another start and goal within the walls of a maze."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fedse.worlds.maze.maps import Cell, Layout, Puzzle

Ends = tuple[Cell, Cell]
"""Start and goal."""
_TOLD = re.compile(r"(\d+)\.(\d+)-(\d+)\.(\d+)")


def told(start: Cell, goal: Cell) -> str:
    """Both in a word.

    >>> told((1, 1), (2, 4))
    '1.1-2.4'
    """
    return f"{start[0]}.{start[1]}-{goal[0]}.{goal[1]}"


def ends(word: str, layout: Layout) -> Ends | None:
    """What `told` told, if both are cells of the maze."""
    found = _TOLD.fullmatch(word)
    if found is None or word != told(*(cells := _cells(found))):
        return None
    return cells if cells[0] in layout.neighbours and cells[1] in layout.neighbours else None


def _cells(found: re.Match[str]) -> Ends:
    row, column, goal_row, goal_column = map(int, found.groups())
    return (row, column), (goal_row, goal_column)


def another(given: Puzzle, lengths: tuple[int, int], draws: Iterator[float]) -> Ends | None:
    """Start and goal whose shortest path has a length within these bounds; not those that are given."""
    goals = list(given.layout.neighbours)
    while goals:
        goal = goals.pop(int(next(draws) * len(goals)))
        distance = given.layout.distances(goal)
        starts = [cell for cell, steps in sorted(distance.items()) if lengths[0] <= steps <= lengths[1]]
        starts = [start for start in starts if (start, goal) != (given.start, given.goal)]
        if starts:
            return starts[int(next(draws) * len(starts))], goal
    return None


def farthest(puzzle: Puzzle, visited: Sequence[Cell], least: int) -> Cell | None:
    """The cell that is farthest from the start, of those visited the first; None if no way there takes `least` steps, or it
    is the goal."""
    distance = puzzle.layout.distances(puzzle.start)
    found = max(visited, key=lambda cell: distance[cell])
    return found if distance[found] >= least and found != puzzle.goal else None
