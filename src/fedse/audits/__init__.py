"""What somebody who sees an adapter can find out about the trajectories behind it."""
