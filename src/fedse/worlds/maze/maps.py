"""Mazes as graphs of cells: the original's fixed map, and mazes generated from a seed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from fedse.errors import BadInput
from fedse.seeds import stream, uniform
from fedse.types import SPLITS, Split
from fedse.worlds.splits import assigned_split

Cell = tuple[int, int]
"""Row and column, counted from 1 inside the outer wall; rows grow downwards, columns to the right."""

STEPS: tuple[Cell, ...] = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Up, down, left, right: the order in which directions are numbered everywhere."""

Neighbours = tuple[Cell | None, ...]
"""The cell one reaches in each direction; None where there is a wall."""


@dataclass(frozen=True, eq=False)
class Layout:
    """A maze without a start or a goal."""

    neighbours: Mapping[Cell, Neighbours]
    picture: tuple[str, ...]
    """Walls as '#', free places as blanks."""
    spread: int
    """Rows of the picture per row of cells: 2 where walls are thin lines between cells, 1 where they are blocks."""

    def place(self, cell: Cell) -> Cell:
        """Where a cell stands in the picture."""
        if self.spread == 1:
            return cell
        return 2 * cell[0] - 1, 2 * cell[1] - 1

    def distances(self, goal: Cell) -> dict[Cell, int]:
        """Length of the shortest path to the goal from every cell that has one."""
        found = {goal: 0}
        queue = deque([goal])
        while queue:
            cell = queue.popleft()
            for neighbour in self.neighbours[cell]:
                if neighbour is not None and neighbour not in found:
                    found[neighbour] = found[cell] + 1
                    queue.append(neighbour)
        return found


@dataclass(frozen=True, eq=False)
class Puzzle:
    """A maze to be solved."""

    layout: Layout
    start: Cell
    goal: Cell
    distance: Mapping[Cell, int]


def from_picture(*rows: str) -> Layout:
    """A maze whose walls are blocks, one character each."""
    free = {(row, column) for row, line in enumerate(rows) for column, mark in enumerate(line) if mark == " "}

    def reached(cell: Cell, step: Cell) -> Cell | None:
        target = (cell[0] + step[0], cell[1] + step[1])
        return target if target in free else None

    return Layout({cell: tuple(reached(cell, step) for step in STEPS) for cell in sorted(free)}, rows, spread=1)


DOUBLE_T_GOAL: Cell = (8, 6)
# Official ids are positions in this list; the last one, 25, would be the goal itself.
DOUBLE_T_STARTS: tuple[Cell, ...] = (
    *((1, column) for column in (1, 2, 3, 4, 5, 7, 8, 9, 10, 11)),
    *((row, 3) for row in (2, 3, 4, 5)),
    *((5, column) for column in (4, 5, 6)),
    *((row, 6) for row in (6, 7)),
    *((5, column) for column in (7, 8, 9)),
    *((row, 9) for row in (4, 3, 2)),
)


@lru_cache(maxsize=1)
def double_t() -> Layout:
    """The one map of the original."""
    return from_picture(
        "#############",
        "#     #     #",
        "### ##### ###",
        "### ##### ###",
        "### ##### ###",
        "###       ###",
        "###### ######",
        "###### ######",
        "###### ######",
        "#############",
    )


@lru_cache(maxsize=64)
def double_t_puzzle(number: int) -> Puzzle:
    layout = double_t()
    return Puzzle(layout, DOUBLE_T_STARTS[number], DOUBLE_T_GOAL, layout.distances(DOUBLE_T_GOAL))


Edge = tuple[Cell, Cell]
SMALL = 4
"""Mazes up to this size are told apart by their shape, however they are turned."""


def _edges(size: int) -> list[Edge]:
    """All pairs of adjacent cells, in a fixed order."""
    cells = [(row, column) for row in range(1, size + 1) for column in range(1, size + 1)]
    return [
        (cell, other)
        for cell in cells
        for other in ((cell[0] + 1, cell[1]), (cell[0], cell[1] + 1))
        if other[0] <= size and other[1] <= size
    ]


def carve(size: int, loops: float, draws: Iterator[float]) -> frozenset[Edge]:
    """The openings of a random maze: one way between any two cells, then a share `loops` of the walls taken away."""
    around: dict[Cell, list[Cell]] = {}
    for cell, other in _edges(size):
        around.setdefault(cell, []).append(other)
        around.setdefault(other, []).append(cell)
    first = (1 + int(next(draws) * size), 1 + int(next(draws) * size))
    seen, path = {first}, [first]
    openings: set[Edge] = set()
    while path:
        cell = path[-1]
        unseen = [other for other in around[cell] if other not in seen]
        if not unseen:
            path.pop()
            continue
        other = unseen[int(next(draws) * len(unseen))]
        openings.add((cell, other) if cell < other else (other, cell))
        seen.add(other)
        path.append(other)
    walls = [edge for edge in _edges(size) if edge not in openings]
    for _ in range(round(loops * len(walls))):
        openings.add(walls.pop(int(next(draws) * len(walls))))
    return frozenset(openings)


def layout_key(size: int, openings: frozenset[Edge]) -> int:
    """A hash of the walls alone: mazes with the same walls have the same key, wherever start and goal are.

    Of small mazes there are so few that turned or mirrored ones would meet by chance: those have the same key, too.
    """
    if size <= SMALL:
        shapes = ("".join("10"[_edge(turn, edge) in openings] for edge in _edges(size)) for turn in _turns(size))
        return stream("maze shape", size, min(shapes))
    return stream("maze layout", size, "".join("10"[edge in openings] for edge in _edges(size)))


def _turns(size: int) -> list[Callable[[Cell], Cell]]:
    """The eight ways to lay a square on itself."""
    last = size + 1
    return [
        lambda cell: cell,
        lambda cell: (last - cell[0], cell[1]),
        lambda cell: (cell[0], last - cell[1]),
        lambda cell: (last - cell[0], last - cell[1]),
        lambda cell: (cell[1], cell[0]),
        lambda cell: (last - cell[1], cell[0]),
        lambda cell: (cell[1], last - cell[0]),
        lambda cell: (last - cell[1], last - cell[0]),
    ]


def _edge(turn: Callable[[Cell], Cell], edge: Edge) -> Edge:
    one, other = turn(edge[0]), turn(edge[1])
    return (one, other) if one < other else (other, one)


def from_openings(size: int, openings: frozenset[Edge]) -> Layout:
    """A maze of size x size cells whose walls are thin lines."""
    neighbours: dict[Cell, Neighbours] = {}
    picture = [["#"] * (2 * size + 1) for _ in range(2 * size + 1)]
    for row in range(1, size + 1):
        for column in range(1, size + 1):
            cell = (row, column)
            reached: list[Cell | None] = []
            picture[2 * row - 1][2 * column - 1] = " "
            for down, right in STEPS:
                other = (row + down, column + right)
                is_open = (cell, other) in openings or (other, cell) in openings
                reached.append(other if is_open else None)
                if is_open:
                    picture[2 * row - 1 + down][2 * column - 1 + right] = " "
            neighbours[cell] = tuple(reached)
    return Layout(neighbours, tuple("".join(line) for line in picture), spread=2)


_ATTEMPTS = 3_000
_LOOKED_AT = 300
"""Mazes among which every split has to find one of its own."""


@lru_cache(maxsize=64)
def require_shapes(size: int, loops: float) -> None:
    """Refuse a kind of maze with so few shapes that a split would have none which the others do not have turned."""
    key = stream("maze shapes", size, str(loops))
    draws = (uniform(key, index) for index in range(1 << 62))
    missing = set(SPLITS)
    for _ in range(_LOOKED_AT):
        missing.discard(assigned_split(layout_key(size, carve(size, loops, draws))))
        if not missing:
            return
    raise BadInput(
        f"maze: there are too few mazes of size {size} with loops {loops} for {', '.join(sorted(missing))} to have any that "
        "is not one of another split, turned or mirrored: raise `size`, or change `loops`."
    )


@lru_cache(maxsize=8192)
def generated_puzzle(
    size: int, loops: float, shortest: int, longest: int, split: Split, pool: int, band: str, number: int
) -> Puzzle:
    """Maze `number` of a split whose shortest path has a length between `shortest` and `longest`."""
    key = stream("maze", size, str(loops), shortest, longest, split, pool, band, number)
    draws = (uniform(key, index) for index in range(1 << 62))
    for _ in range(_ATTEMPTS):
        openings = carve(size, loops, draws)
        if assigned_split(layout_key(size, openings)) != split:
            continue
        layout = from_openings(size, openings)
        cells = list(layout.neighbours)
        while cells:
            goal = cells.pop(int(next(draws) * len(cells)))
            distance = layout.distances(goal)
            starts = [cell for cell, steps in distance.items() if shortest <= steps <= longest]
            if starts:
                return Puzzle(layout, starts[int(next(draws) * len(starts))], goal, distance)
    raise BadInput(
        f"maze: no maze of size {size} with loops {loops} and a shortest path of {shortest} to {longest} steps was "
        f"found for {split}; lower `shortest`, `longest` or `loops`, or raise `size`."
    )
