"""Worlds made from other people's environments: Gymnasium, TextArena, reasoning-gym and AgentGym's servers."""
