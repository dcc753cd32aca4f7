"""Maze: walk to the goal. Clean: generated mazes, those of the test never seen before. Original: one fixed map."""

from fedse.worlds.maze.world import Maze

__all__ = ["Maze"]
