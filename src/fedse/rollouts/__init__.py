"""Play many episodes at once and record what the agent wrote, token by token."""
