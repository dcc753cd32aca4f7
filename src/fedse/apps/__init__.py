"""A federation over several machines: what Flower starts, and what starts Flower."""
