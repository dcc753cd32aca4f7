"""BabyAI: do what a sentence asks for in rooms with balls, boxes, keys and doors, seen through words."""

from fedse.worlds.babyai.world import BabyAI

__all__ = ["BabyAI"]
