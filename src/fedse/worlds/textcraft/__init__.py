"""TextCraft: make a thing out of other things. Clean: goals of the test never trained for. Original: 544 Minecraft goals."""

from fedse.worlds.textcraft.world import TextCraft

__all__ = ["TextCraft"]
