"""The worlds agents work in: Gymnasium environments whose observations and actions are text."""
