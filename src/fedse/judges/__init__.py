"""What a trajectory is worth, before anything is kept or learned."""
