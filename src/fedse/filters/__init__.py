"""Which trajectories of a round are remembered. Errors never get here; the order is kept."""
