"""What learning rules make of attempts: how much each of the agent's tokens counts."""
