"""How the updates of a round become the next adapter. Plain NumPy: a server needs no torch."""
